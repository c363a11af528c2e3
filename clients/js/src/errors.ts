/** What this client refuses: `field` names the first thing that is wrong, the message says what was got and expected. */
export class Refused extends Error {
  constructor(
    readonly field: string,
    message: string,
  ) {
    super(message);
    this.name = "Refused";
  }
}
