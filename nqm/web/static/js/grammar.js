// Constructor text to a tree and back, so that menus and text show the same optimizer. Numbers stay the text that the user
// wrote (1 - 2^-7 is not evaluated). Text that this parser cannot read is sent to the server, which says what is wrong.

/**
 * A call: {name, args: [{name: string | null, value: string | call}]}.
 * `EMA(HeavyBall(momentum=0.9), 0.99)` has the arguments inner (a call, unnamed) and "0.99".
 */
export function parseCall(text) {
  const reader = new Reader(text);
  const call = reader.call();
  reader.space();
  if (!reader.done()) throw new SyntaxError(`cannot read ${reader.rest()}`);
  return call;
}

export function printCall(call) {
  const args = call.args.map(({ name, value }) => {
    const text = typeof value === "string" ? value : printCall(value);
    return name ? `${name}=${text}` : text;
  });
  return `${call.name}(${args.join(", ")})`;
}

class Reader {
  constructor(text) {
    this.text = text;
    this.at = 0;
  }

  done() {
    return this.at >= this.text.length;
  }

  rest() {
    return this.text.slice(this.at, this.at + 20);
  }

  space() {
    while (/\s/.test(this.text[this.at] ?? "")) this.at += 1;
  }

  take(pattern) {
    this.space();
    const found = pattern.exec(this.text.slice(this.at));
    if (!found || found.index !== 0) return null;
    this.at += found[0].length;
    return found[0];
  }

  call() {
    const name = this.take(/^[A-Za-z_]\w*/);
    if (!name) throw new SyntaxError(`a name is missing before ${this.rest()}`);
    const args = [];
    if (this.take(/^\(/)) {
      while (!this.take(/^\)/)) {
        args.push(this.argument());
        if (!this.take(/^,/) && !/^\s*\)/.test(this.text.slice(this.at))) throw new SyntaxError("a bracket is open");
      }
    }
    return { name, args };
  }

  argument() {
    const named = this.take(/^[A-Za-z_]\w*\s*=(?!=)/);
    const name = named ? named.replace(/\s*=$/, "") : null;
    this.space();
    if (/^[A-Za-z_]\w*\s*\(/.test(this.text.slice(this.at))) return { name, value: this.call() };
    const value = this.take(/^[^,()[\]]*(\([^()]*\)[^,()[\]]*)*/)?.trim();
    if (!value) throw new SyntaxError(`a value is missing before ${this.rest()}`);
    // A bare name of an optimizer, EMA(SGD), is a call without arguments; free and inf are values.
    if (/^[A-Z]\w*$/.test(value)) return { name, value: { name: value, args: [] } };
    return { name, value };
  }
}

/** The call with every argument named, given the names in order; surplus arguments stay unnamed. */
export function withNames(call, namesOf) {
  const names = namesOf(call.name) ?? [];
  const args = call.args.map(({ name, value }, i) => ({
    name: name ?? names[i] ?? null,
    value: typeof value === "string" ? value : withNames(value, namesOf),
  }));
  return { name: call.name, args };
}

export function argument(call, name) {
  return call.args.find((arg) => arg.name === name)?.value;
}

/** The call with one argument set, or omitted if the value is null. */
export function withArgument(call, name, value) {
  const others = call.args.filter((arg) => arg.name !== name);
  if (value === null || value === "") return { ...call, args: others };
  const at = call.args.findIndex((arg) => arg.name === name);
  const args = [...call.args];
  if (at >= 0) args[at] = { name, value };
  else args.push({ name, value });
  return { ...call, args };
}

/** The layers of an optimizer from the outside in: EMA(HeavyBall()) is [EMA, HeavyBall]. */
export function layers(call) {
  const found = [];
  for (let layer = call; layer && typeof layer !== "string"; layer = argument(layer, "inner")) found.push(layer);
  return found;
}

/** The optimizer that consists of these layers. */
export function nest(list) {
  const inner = list.at(-1);
  return list.slice(0, -1).reduceRight((held, layer) => {
    const args = layer.args.filter((arg) => arg.name !== "inner");
    return { name: layer.name, args: [{ name: "inner", value: held }, ...args] };
  }, inner);
}

/** The name `inner` is never written. */
export function printTidy(call) {
  const args = call.args.map(({ name, value }) => {
    const text = typeof value === "string" ? value : printTidy(value);
    return name && name !== "inner" ? `${name}=${text}` : text;
  });
  return `${call.name}(${args.join(", ")})`;
}
