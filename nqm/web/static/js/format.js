// Numbers and ticks as text. Positions of ticks and digits of numbers are the only things that the page computes itself.

const SUPERSCRIPTS = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

export function superscript(exponent) {
  return [...String(exponent)].map((c) => SUPERSCRIPTS[c]).join("");
}

/** A value in a table, written exactly as by `shown` in nqm/show/numbers.py; a test compares the two. */
export function valueText(value) {
  if (typeof value === "string") return value;
  if (value === null || value === undefined || Number.isNaN(value)) return "-";
  const sign = value < 0 || Object.is(value, -0) ? "-" : "";
  const size = Math.abs(value);
  if (size === Infinity) return `${sign}inf`;
  if ((size >= 100 && size < 1e15) || (size < 100 && Number.isInteger(size))) return sign + grouped(evenly(size));
  if (value > 0.99 && value < 1) return value.toFixed(2 - Math.floor(Math.log10(1 - value)));
  return sign + general(size, 4);
}

/** An interpolated batch size, rounded as by `rounded` in nqm/show/numbers.py. */
export function rounded(value) {
  if (!Number.isFinite(value)) return value;
  return value >= 10 ? evenly(value) : Math.sign(value) * Number(general(Math.abs(value), 2));
}

/** An interpolated batch size as text. */
export const roundedText = (value) => valueText(rounded(value));

const grouped = (whole) => String(whole).replace(/\B(?=(\d{3})+$)/g, ",");

/** The nearest whole number; of two equally near, the even one. */
function evenly(size) {
  const low = Math.floor(size);
  return size - low === 0.5 ? low + (low % 2) : Math.round(size);
}

/** A positive number to this many digits, without trailing zeros, as Python's format "g" writes it. */
function general(size, digits) {
  const [mark, exponent] = significant(size, digits);
  const kept = mark.replace(/0+$/, "");
  if (exponent >= digits || exponent < -4) {
    const tail = kept.length > 1 ? `.${kept.slice(1)}` : "";
    return `${kept[0]}${tail}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
  }
  if (exponent < 0) return `0.${"0".repeat(-exponent - 1)}${kept}`;
  const whole = kept.slice(0, exponent + 1).padEnd(exponent + 1, "0");
  return kept.length > exponent + 1 ? `${whole}.${kept.slice(exponent + 1)}` : whole;
}

/** The significant digits and the exponent of the first; ties are rounded to even, as in Python. */
function significant(size, digits) {
  const [all, exponent] = size.toExponential(100).replace(".", "").split("e");
  const kept = all.slice(0, digits);
  if (/^50*$/.test(all.slice(digits)) && Number(kept.at(-1)) % 2 === 0) return [kept, Number(exponent)];
  const [mark, power] = size.toExponential(digits - 1).replace(".", "").split("e");
  return [mark, Number(power)];
}

/** The text of a tick: all its digits with separated thousands, or a power of ten if it is tiny or huge. */
function tickText(value) {
  const size = Math.abs(value);
  if (value === 0 || (size < 1e7 && size >= 1e-4)) return value.toLocaleString("en-US", { maximumSignificantDigits: 10 });
  const [mantissa, exponent] = value.toExponential(2).split("e");
  return `${Number(mantissa)}·10${superscript(Number(exponent))}`;
}

/** The same number in ASCII, which the parsers can read back. */
export function plain(value, digits = 6) {
  return String(Number(Number(value).toPrecision(digits)));
}

/** A power of two such as 2¹⁰, or another number as it is. */
export function batchText(value) {
  const k = Math.log2(value);
  return Number.isInteger(k) && k > 3 ? `2${superscript(k)}` : valueText(value);
}

const LINEAR_STEPS = [1, 2, 2.5, 5, 10];

function linearTicks(low, high, room) {
  const rough = (high - low) / Math.max(1, room);
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * (LINEAR_STEPS.find((s) => s * unit >= rough) ?? 10);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i += 1) ticks.push(i * step);
  return ticks.map((v) => ({ value: v, text: tickText(Number(v.toPrecision(10))) }));
}

/** Powers of a base, as many as there is room for; within a single power, ticks at 1, 2 and 5 times. */
function logTicks(low, high, room, base) {
  const log = (v) => Math.log(v) / Math.log(base);
  const first = Math.ceil(log(low) - 1e-9);
  const last = Math.floor(log(high) + 1e-9);
  if (last - first < 1) return within(low, high, base);
  const stride = [1, 2, 4, 5, 10, 20, 50, 100].find((s) => (last - first) / s <= room) ?? 200;
  const ticks = [];
  for (let k = Math.ceil(first / stride) * stride; k <= last; k += stride) {
    ticks.push({ value: base ** k, text: powerText(base, k) });
  }
  return ticks;
}

function powerText(base, k) {
  if (base === 10 && k >= -2 && k <= 3) return tickText(base ** k);
  return k === 0 ? "1" : `${base}${superscript(k)}`;
}

function within(low, high, base) {
  const unit = base ** Math.floor(Math.log(low) / Math.log(base));
  const ticks = [];
  for (const m of [1, 1.5, 2, 3, 5, 7, 10, 15, 20]) {
    if (m * unit >= low && m * unit <= high) ticks.push({ value: m * unit, text: tickText(m * unit) });
  }
  return ticks.length > 1 ? ticks : linearTicks(low, high, 4);
}

/** Ticks for decays near 1: 0, 0.9, 0.99, ... are equally spaced on the scale -log10(1 - v). */
function memoryTicks(low, high) {
  const ticks = [];
  for (let k = 0; k <= 9; k += 1) {
    const value = 1 - 10 ** -k;
    if (value >= low - 1e-12 && value <= high + 1e-12) ticks.push({ value, text: k ? `0.${"9".repeat(k)}` : "0" });
  }
  const half = { value: 0.5, text: "0.5" };
  if (ticks.length < 4 && low <= 0.5 && high >= 0.5) ticks.push(half);
  return ticks.sort((a, b) => a.value - b.value);
}

/** Ticks of a scale between two values, about `room` at most. */
export function ticksOf(scale, low, high, room) {
  if (!(high > low && Number.isFinite(high - low))) return [{ value: low, text: tickText(low) }];
  if (scale === "log2") return logTicks(low, high, room, 2);
  if (scale === "log") return logTicks(low, high, room, 10);
  if (scale === "memory") return memoryTicks(low, high);
  return linearTicks(low, high, room);
}

const LEAST = 1e-12; // 1 - a decay of 1 would be infinitely far away

/** The position of a value on a scale, in which distances are those of the picture; and back. */
export const forward = {
  linear: (v) => v,
  log: (v) => Math.log10(v),
  log2: (v) => Math.log2(v),
  memory: (v) => -Math.log10(Math.max(1 - v, LEAST)),
};
export const backward = {
  linear: (u) => u,
  log: (u) => 10 ** u,
  log2: (u) => 2 ** u,
  memory: (u) => 1 - 10 ** -u,
};
export const isLog = (scale) => scale === "log" || scale === "log2";

const LARGEST_DRAWN = 1e200; // a run that diverges is drawn up to here: beyond it arithmetic on axes overflows

/** Whether an axis can show a value. */
export function showable(value, scale) {
  return value !== null && Math.abs(value) <= LARGEST_DRAWN && !(isLog(scale) && value <= 0);
}

/** The limits of an axis: its own, or those of the values that its scale can show, with a margin. */
export function limitsOf(axis, columns) {
  let low = Infinity;
  let high = -Infinity;
  for (const column of columns) {
    for (const value of column) {
      if (!showable(value, axis.scale)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  if (low > high) [low, high] = isLog(axis.scale) ? [1, 10] : [0, 1];
  const to = forward[axis.scale];
  const from = backward[axis.scale];
  const air = axis.air ?? 0.04;
  let [a, b] = [to(axis.min ?? low), to(axis.max ?? high)];
  if (b - a < 1e-9) [a, b] = [a - 0.5, b + 0.5];
  const margin = (b - a) * air;
  const lowest = from(a - margin - (b - a) * (axis.below ?? 0)); // room along the bottom, where something else is drawn
  return [
    axis.min ?? (axis.scale === "memory" ? Math.max(0, lowest) : lowest),
    axis.max ?? from(b + margin),
  ];
}
