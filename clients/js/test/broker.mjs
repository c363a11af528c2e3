/** A party at a broker, for tests: settings in the first argument; it answers an order with the same bytes, and refuses those that begin with 0xde. */
import { Party, Refused } from "../desketch.mjs";

const settings = JSON.parse(process.argv[2]);
const say = (what) => process.stdout.write(JSON.stringify(what) + "\n");

const party = new Party({
  keepalive: 30,
  ...settings,
  answer(order) {
    if (order[0] === 0xde) throw new Refused("magic", "magic: no order at all");
    return order;
  },
  onChange: (what) => say({ what }),
});
try {
  await party.run();
  say({ what: "over", ...party.traffic });
} catch (error) {
  say({ what: "stopped", name: error.name, message: error.message });
}
