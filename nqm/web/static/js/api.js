// The wire: one function per question, answers remembered, stale questions cancelled.

const REMEMBERED = 200;
const answers = new Map();

/** What the server did not answer, as it said so: a sentence, the field it is about, and the argument in the field's text. */
export class Refused extends Error {
  constructor(sentence, status, field = null, argument = null) {
    super(sentence);
    Object.assign(this, { status, field, argument });
  }
}

async function read(response) {
  let body;
  try {
    body = await response.json();
  } catch {
    throw new Refused(`The server answered ${response.status} without JSON.`, response.status);
  }
  if (!response.ok) throw new Refused(body.error ?? `The server answered ${response.status}.`, response.status, body.field, body.argument);
  return body;
}

export async function get(path) {
  return read(await reach(path, {}));
}

/** Ask; the same question asked again is answered from memory. */
export async function post(path, body, signal) {
  const text = JSON.stringify(body);
  const key = `${path} ${text}`;
  if (answers.has(key)) return answers.get(key);
  const headers = { "Content-Type": "application/json" };
  const answer = await read(await reach(path, { method: "POST", headers, body: text, signal }));
  answers.set(key, answer);
  if (answers.size > REMEMBERED) answers.delete(answers.keys().next().value);
  return answer;
}

/** Send a file as it is. */
export async function send(path, file, headers = {}) {
  return read(await reach(path, { method: "POST", body: file, headers }));
}

async function reach(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The server cannot be reached; is nqm serve still running?", 0);
  }
}

/** Questions of one kind, of which only the newest matters. */
export class Latest {
  constructor() {
    this.controller = null;
  }

  /** A signal for a new question; the one before is cancelled. */
  next() {
    this.cancel();
    this.controller = new AbortController();
    return this.controller.signal;
  }

  cancel() {
    this.controller?.abort();
    this.controller = null;
  }
}

export const isAbort = (error) => error?.name === "AbortError";
