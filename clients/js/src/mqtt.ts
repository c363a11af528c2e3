/**
 * MQTT 5 over a WebSocket, the part that a client of a run needs: connect with a last will, subscribe, publish at QoS 0, ping.
 *
 * OASIS, "MQTT Version 5.0", 2019: packets of sections 3.1 to 3.14; over WebSockets (section 6) a packet may be cut anywhere.
 */

import { concat } from "./bytes.ts";

const CONNECT = 0x10;
const CONNACK = 0x20;
const PUBLISH = 0x30;
const SUBSCRIBE = 0x82;
const SUBACK = 0x90;
const PINGREQ = 0xc0;
const DISCONNECT = 0xe0;
const RETAIN = 1;
const FAILURE = 0x80; // reason codes from here on
const LONGEST_PACKET = 64 << 20;
const REASONS: Record<number, string> = {
  0x84: "another version of MQTT", 0x85: "the name is not valid", 0x86: "wrong user name or password", 0x87: "not authorised",
  0x88: "the server is not available", 0x89: "the server is busy", 0x8a: "banned", 0x8e: "another one took its place", 0x97: "quota exceeded",
};

/** Why a connection ended; waiting mends a lost one, but not a `refused` one. */
export class MqttEnd extends Error {
  constructor(
    message: string,
    readonly refused = false,
  ) {
    super(message);
    this.name = "MqttEnd";
  }
}

export interface MqttSettings {
  /** `ws://host:port/` or `wss://host:port/` */
  url: string;
  /** This party's MQTT client id. */
  name: string;
  user?: string;
  password?: string;
  /** The topic that the broker clears when this party is gone. */
  will?: string;
  topics: string[];
  /** Seconds of silence after which a ping is sent. */
  keepalive: number;
  onMessage: (topic: string, payload: Uint8Array) => void;
}

const text = (value: string): Uint8Array => {
  const bytes = new TextEncoder().encode(value);
  return concat([bytes.length >> 8, bytes.length & 255], bytes);
};

function packet(first: number, ...parts: ArrayLike<number>[]): Uint8Array {
  const body = concat(...parts);
  const length = [];
  let rest = body.length;
  do length.push((rest & 127) | (rest > 127 ? 128 : 0));
  while ((rest >>= 7));
  return concat([first], length, body);
}

function connectPacket({ name, user, password, will, keepalive }: MqttSettings): Uint8Array {
  const flags = 0x02 | (will === undefined ? 0 : 0x24) | (user === undefined ? 0 : 0x80) | (password === undefined ? 0 : 0x40);
  const optional = [user, password].filter((value) => value !== undefined).map(text);
  const last = will === undefined ? [] : [[0], text(will), [0, 0]]; // no properties, the topic, an empty message
  return packet(CONNECT, text("MQTT"), [5, flags, keepalive >> 8, keepalive & 255, 0], text(name), ...last, ...optional);
}

export class Mqtt {
  /** Bytes of MQTT packets, both ways. */
  sent = 0;
  received = 0;
  /** Settles when the connection has ended, and says why. */
  readonly ended: Promise<MqttEnd>;
  private readonly socket: WebSocket;
  private end!: (reason: MqttEnd) => void;
  private rest: Uint8Array = new Uint8Array(0);
  private standing!: () => void;
  private pings: ReturnType<typeof setInterval> | undefined;

  private constructor(private readonly settings: MqttSettings) {
    this.ended = new Promise((resolve) => (this.end = resolve));
    this.socket = new WebSocket(settings.url, "mqtt");
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () => this.send(connectPacket(settings));
    this.socket.onmessage = ({ data }) => this.take(new Uint8Array(data as ArrayBuffer));
    this.socket.onclose = () => this.finish(new MqttEnd("the connection to the broker was lost"));
    void this.ended.then(() => clearInterval(this.pings));
  }

  /** Connect and subscribe; rejects with an `MqttEnd`. */
  static async open(settings: MqttSettings): Promise<Mqtt> {
    const made = new Mqtt(settings);
    const stands = new Promise<void>((resolve) => (made.standing = resolve));
    const end = await Promise.race([stands, made.ended]);
    if (end instanceof MqttEnd) throw end;
    made.pings = setInterval(() => made.send(packet(PINGREQ)), settings.keepalive * 500);
    return made;
  }

  publish(topic: string, payload: Uint8Array, retain = false): void {
    this.send(packet(PUBLISH | (retain ? RETAIN : 0), text(topic), [0], payload));
  }

  /** Leave in good order: the last will is not published. */
  close(): void {
    this.send(packet(DISCONNECT));
    this.finish(new MqttEnd("closed"));
  }

  private finish(reason: MqttEnd): void {
    this.end(reason);
    this.socket.close();
  }

  private send(bytes: Uint8Array): void {
    if (this.socket.readyState !== 1) return; // open
    this.sent += bytes.length;
    this.socket.send(bytes);
  }

  /** Cut the stream into packets. */
  private take(bytes: Uint8Array): void {
    this.received += bytes.length;
    this.rest = this.rest.length === 0 ? bytes : concat(this.rest, bytes);
    for (;;) {
      let [at, length] = [1, 0];
      for (let more = true; more; at++) {
        if (at >= this.rest.length) return;
        if (at > 4) return this.finish(new MqttEnd("the broker does not speak MQTT: a length of more than 4 bytes", true));
        length += (this.rest[at] & 127) * 128 ** (at - 1);
        more = this.rest[at] > 127;
      }
      if (length > LONGEST_PACKET) return this.finish(new MqttEnd(`the broker sent a packet of ${length} bytes`, true));
      if (this.rest.length < at + length) return;
      const [first, body] = [this.rest[0], this.rest.slice(at, at + length)];
      this.rest = this.rest.subarray(at + length);
      this.handle(first, body);
    }
  }

  private handle(first: number, body: Uint8Array): void {
    const kind = first & 0xf0;
    if (kind === CONNACK) this.accepted(body[1]);
    else if (kind === SUBACK) this.subscribed(body);
    else if (kind === DISCONNECT) this.finish(refusal("the broker ended the connection", body[0] ?? 0));
    else if (kind === PUBLISH) this.deliver(body);
  }

  private accepted(reason: number): void {
    if (reason !== 0) return this.finish(refusal("the broker does not let this client in", reason));
    this.send(packet(SUBSCRIBE, [0, 1, 0], ...this.settings.topics.flatMap((topic) => [text(topic), [0]])));
  }

  private subscribed(body: Uint8Array): void {
    const bad = body.subarray(3 + body[2]).find((reason) => reason >= FAILURE);
    if (bad !== undefined) return this.finish(refusal("the broker refuses a subscription", bad));
    this.standing();
  }

  private deliver(body: Uint8Array): void {
    const end = 2 + (body[0] << 8) + body[1];
    if (end >= body.length || body[end] > 127) return this.finish(new MqttEnd("the broker sent a message that cannot be read", true));
    const topic = new TextDecoder().decode(body.subarray(2, end));
    this.settings.onMessage(topic, body.subarray(end + 1 + body[end]));
  }
}

function refusal(what: string, reason: number): MqttEnd {
  const why = REASONS[reason] ?? `reason 0x${reason.toString(16)}`;
  return new MqttEnd(`${what}: ${why}`, reason >= FAILURE && reason !== 0x88 && reason !== 0x89 && reason !== 0x8b);
}
