// Requests to the server. Answers are remembered, and requests that are out of date are cancelled.

const REMEMBERED = 200;
const answers = new Map();

/** A request that the server refused: its sentence, the field it is about, and the argument in the text of that field. */
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

/** A file of the page as text. */
export async function text(path) {
  return (await reach(path, {})).text();
}

/** Send a request; the same request is answered from memory the next time. */
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

/** Send a request whose answer comes in parts; `heard(part)` is called with each, and the whole is returned. */
export async function stream(path, body, signal, heard) {
  const text = JSON.stringify(body);
  const key = `${path} ${text}`;
  if (answers.has(key)) return answers.get(key);
  const headers = { "Content-Type": "application/json", Accept: "text/event-stream" };
  const response = await reach(path, { method: "POST", headers, body: text, signal });
  if (!response.ok || !response.headers.get("Content-Type")?.startsWith("text/event-stream")) return read(response); // it was refused, or something in between cannot stream
  const { status, answer } = await lastOf(response.body, heard);
  if (status !== 200) throw new Refused(answer?.error ?? "The answer broke off.", status, answer?.field, answer?.argument);
  answers.set(key, answer);
  if (answers.size > REMEMBERED) answers.delete(answers.keys().next().value);
  return answer;
}

/** The last event of a stream; the others are told. */
async function lastOf(body, heard) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return { status: 0 };
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const told = JSON.parse(event.replace(/^data: /, ""));
      if (told.status !== undefined) return told;
      heard(told);
    }
  }
}

/** Send a file unchanged. */
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

/** Requests of one kind, of which only the newest matters. */
export class Latest {
  constructor() {
    this.controller = null;
  }

  /** A signal for a new request; the previous one is cancelled. */
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
