/**
 * Party: one client of a run over a broker (docs/mqtt.md): orders in, replies out, until the run is over.
 *
 * An order has four bytes before it, its stamp: which process of the server sent it, and as its how-manieth.  One that is older
 * than the newest is dropped; one that was answered last gets the same bytes again; a stamp alone says that the run is over.
 */

import { Refused } from "./errors.ts";
import { Mqtt, MqttEnd, type MqttSettings } from "./mqtt.ts";

const STAMP = 4;
const FIRST_PAUSE = 0.5;
const LONGEST_PAUSE = 60;

export interface PartySettings extends Omit<MqttSettings, "will" | "topics" | "onMessage"> {
  /** The first level of the run's topics. */
  root: string;
  client: number;
  /** From an order to a reply, `Session.answer`; what it throws ends the party. */
  answer: (order: Uint8Array) => Uint8Array;
  /** Called when the connection stands, when it is lost, and after every answer. */
  onChange?: (what: "connected" | "lost" | "answered") => void;
}

export class Party {
  private link: Mqtt | undefined;
  private past = { sent: 0, received: 0 };
  private newest: Uint8Array | undefined;
  private last: { order: Uint8Array; reply: Uint8Array } | undefined;
  private over = false;
  private failed: Error | undefined;

  constructor(private readonly settings: PartySettings) {}

  /** Bytes of MQTT packets so far, over all connections. */
  get traffic(): { sent: number; received: number } {
    const { sent, received } = this.link ?? { sent: 0, received: 0 };
    return { sent: this.past.sent + sent, received: this.past.received + received };
  }

  /** Answer until the run is over; a lost connection is made again, after a pause that doubles. */
  async run(): Promise<void> {
    for (let pause = FIRST_PAUSE; !this.over; pause = Math.min(2 * pause, LONGEST_PAUSE)) {
      const end = await this.connection();
      if (this.failed) throw this.failed;
      if (this.over) return;
      if (end.refused) throw end;
      this.settings.onChange?.("lost");
      await new Promise((resolve) => setTimeout(resolve, 1000 * pause * (0.5 + Math.random())));
    }
  }

  /** Leave the run for now. */
  leave(): void {
    this.over = true;
    this.goodbye();
  }

  private async connection(): Promise<MqttEnd> {
    const { root, client } = this.settings;
    const settings = { ...this.settings, will: `${root}/${client}/p`, topics: [`${root}/${client}/o`, `${root}/o`] };
    try {
      this.link = await Mqtt.open({ ...settings, onMessage: (_, payload) => this.receive(payload) });
    } catch (error) {
      if (error instanceof MqttEnd) return error;
      throw error;
    }
    this.link.publish(`${root}/${client}/p`, Uint8Array.of(0x31), true);
    this.settings.onChange?.("connected");
    const end = await this.link.ended;
    this.past = this.traffic;
    this.link = undefined;
    return end;
  }

  private receive(payload: Uint8Array): void {
    if (this.failed || this.over || payload.length < STAMP) return;
    const [stamp, order] = [payload.slice(0, STAMP), payload.slice(STAMP)];
    if (this.newest && !isAfter(stamp, this.newest)) return;
    this.newest = stamp;
    if (order.length === 0) return this.leave();
    try {
      const repeated = this.last && equal(this.last.order, order);
      const reply = repeated ? this.last!.reply : this.settings.answer(order);
      this.last = { order, reply };
      this.link?.publish(`${this.settings.root}/${this.settings.client}/r`, reply);
      this.settings.onChange?.("answered");
    } catch (error) {
      this.failed = error as Error;
      if (!(error instanceof Refused)) console.error(error);
      this.goodbye();
    }
  }

  private goodbye(): void {
    this.link?.publish(`${this.settings.root}/${this.settings.client}/p`, new Uint8Array(0), true);
    this.link?.close();
  }
}

const equal = (x: Uint8Array, y: Uint8Array): boolean => x.length === y.length && x.every((byte, i) => byte === y[i]);

/** Whether a stamp is newer than another, or of another process of the server. */
function isAfter(stamp: Uint8Array, other: Uint8Array): boolean {
  const serial = (s: Uint8Array): number => s[2] + 256 * s[3];
  const ahead = (serial(stamp) - serial(other) + 65536) % 65536;
  return stamp[0] !== other[0] || stamp[1] !== other[1] || (ahead > 0 && ahead < 32768);
}
