// Pure parts of the page's JavaScript: a module, what to compute with it, and what that is. test_units.py runs each in the browser.
({
  "a call and back": [
    "grammar",
    async (m) => {
      return m.printCall(m.parseCall('EMA( HeavyBall(momentum = 1 - 2^-7), 0.99 )'));
    },
    "EMA(HeavyBall(momentum=1 - 2^-7), 0.99)",
  ],
  "an open bracket": [
    "grammar",
    async (m) => {
      try {
        m.parseCall('SGD(0.1');
      return 'read' } catch (e) { return e.name }
    },
    "SyntaxError",
  ],
  "an argument is replaced": [
    "grammar",
    async (m) => {
      return m.printCall(m.withArgument(m.parseCall('power_law(d=10, noise=2)'), 'noise', '3'));
    },
    "power_law(d=10, noise=3)",
  ],
  "layers": [
    "grammar",
    async (m) => {
      return m.layers(m.withNames(m.parseCall('EMA(SGD)'), () => ['inner'])).map((l) => l.name);
    },
    ["EMA", "SGD"],
  ],
  "a state and back": [
    "state",
    async (m) => {
      const s = {...m.DEFAULTS, o: ['SGD(lr=1 - 2^-3)', 'EMA(SGD())'], target: '0.1&x=%'};
      return JSON.stringify(m.fromHash(m.toHash(s))) === JSON.stringify(s);
    },
    true,
  ],
  "defaults are not written": [
    "state",
    async (m) => {
      return m.toHash(m.DEFAULTS);
    },
    "#",
  ],
  "unknown keys are ignored": [
    "state",
    async (m) => {
      return 'constructor' in m.fromHash('#constructor=1') && m.fromHash('#evil=1').evil;
    },
    null,
  ],
  "a stray percent sign": [
    "state",
    async (m) => {
      return m.fromHash('#target=5%').target;
    },
    "5%",
  ],
  "packed and back": [
    "state",
    async (m) => {
      return m.unpack(await m.pack('a long text '.repeat(50)));
    },
    "a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text a long text ",
  ],
  "undo": [
    "trail",
    async (m) => {
      const t = new m.Trail("a");
      t.record('b', ['x'], 0);
      t.record('c', ['y'], 5000);
      return [t.undo(), t.undo(), t.undo(), t.redo(), t.redo(), t.redo()];
    },
    ["b", "a", null, "b", "c", null],
  ],
  "one move of a slider": [
    "trail",
    async (m) => {
      const t = new m.Trail("a");
      for (let i = 0;
      i < 9;
      i += 1) t.record(i, ['x'], 100 * i);
      return [t.undo(), t.past.length];
    },
    ["a", 0],
  ],
  "two sliders": [
    "trail",
    async (m) => {
      const t = new m.Trail("a");
      t.record('b', ['x'], 0);
      t.record('c', ['y'], 100);
      return t.undo();
    },
    "b",
  ],
  "what follows at once": [
    "trail",
    async (m) => {
      const t = new m.Trail("a");
      t.record('b', ['steps'], 0);
      t.record('c', ['schedule'], 1);
      return t.undo();
    },
    "a",
  ],
  "a change ends the future": [
    "trail",
    async (m) => {
      const t = new m.Trail("a");
      t.record('b', ['x'], 0);
      t.undo();
      t.record('c', ['x'], 9000);
      return t.redo();
    },
    null,
  ],
  "fewer": [
    "words",
    async (m) => {
      return [m.change(100, 66), m.change(100, 250), m.change(100, 130), m.change(100, 100.1), m.change(0, 1)];
    },
    ["34% fewer", "2.5 times as many", "30% more", "as many", null],
  ],
  "rounded": [
    "words",
    async (m) => {
      return [m.about(19845.3), m.about(79.2), m.about(4.83), m.times(59.2), m.times(1.34)];
    },
    ["19,800", "79", "4.8", "59 times", "1.3 times"],
  ],
  "spoken": [
    "words",
    async (m) => {
      return [m.spoken('HeavyBall()'), m.spoken('constructor'), m.short('EMA(SGD())')];
    },
    ["momentum", "constructor", "EMA(SGD)"],
  ],
  "ticks": [
    "format",
    async (m) => {
      return m.ticksOf('log2', 4, 64, 10).map((t) => t.text);
    },
    ["2²", "2³", "2⁴", "2⁵", "2⁶"],
  ],
  "names at ends": [
    "model",
    async (m) => {
      const line = (end, y) => ({end, x: [1, 2], y: [1, y], role: 'c0'});
      const panel = {x: {scale: 'linear'}, y: {scale: 'linear'},
        lines: [line('a', 50), line('b', 51), line('c', 99)]};
      return m.endNames(panel, new Set([2]), (y) => y, 0, 60).map((n) => [n.text, n.at]);
    },
    [["a", 45], ["b", 60]],
  ],
  "presets are known again": [
    "presets",
    async (m) => {
      const {DEFAULTS} = await import('/js/state.js');
      return m.PRESETS.map((p) => m.presetOf({...DEFAULTS, ...p.changes}).id);
    },
    ["paper", "language", "image", "noiseless"],
  ],
  "the opening sentence": [
    "views/steps",
    async (m) => {
      const sweep = (label, at, steps) => ({label, critical_batch_size: {'20%': at}, steps, batch_sizes: [1, 2], smallest_steps: steps[1]});
      return [m.said([sweep('SGD()', 335.2, [9, 5]), sweep('HeavyBall()', 19845, [9, 4])], {critical: '20%'}),
        m.said([sweep('SGD()', 5, [8, 8]), sweep('Adam()', 5, [2, 2])], {critical: '20%'})];
    },
    ["Momentum keeps scaling to batch size 19,800; plain SGD stops at 335: 59 times further.", "The batch size makes no difference here. Adam takes 2 steps, plain SGD 4 times as many."],
  ],
  "heights of bars": [
    "timeline",
    async (m) => {
      return [m.barHeight(1, 1), m.barHeight(1e-2, 1), m.barHeight(1e-9, 1), m.barHeight(0, 1)];
    },
    [1, 0.5, 0, 0],
  ],
  "shapes of schedules": [
    "pieces",
    async (m) => {
      return [m.shaped("linear", 100, 4), m.shaped("wsd", 100, 10).lr.slice(-3), m.shaped("cosine", 10, 2).lr];
    },
    [{ "lengths": [25, 25, 25, 25], "lr": [0.875, 0.625, 0.375, 0.125] }, [1, 0.75, 0.25], [0.8536, 0.1464]],
  ],
  "a difference in words": [
    "compare",
    async (m) => {
      const of = (y) => [{ name: "SGD", x: [1, 2, 3], y, unit: "steps" }];
      return [m.difference(of([50, 25, null]), of([100, 50, 9])), m.difference(of([1, 1, 1]), [])];
    },
    ["Against the pinned setting, SGD: 50% fewer steps.", "Nothing here can be compared with the pinned setting."],
  ],
  "cells of a CSV": [
    "csv",
    async (m) => {
      return m.readCsv('\ufeffbatch size;"steps; all"\r\n4;"1""2"\n# a remark\n\n16;\n');
    },
    { columns: ["batch size", "steps; all"], rows: [["4", '1"2'], ["16", ""]] },
  ],
  "a CSV without rows": [
    "csv",
    async (m) => {
      try {
        m.readCsv('a,b\n', 'x.csv');
      } catch (e) { return e.message.slice(0, 27) }
    },
    "The file x.csv has no rows:",
  ],
  "columns are found by the names of axes": [
    "overlay",
    async (m) => {
      const columns = ['name', 'Batch_Size', 'steps', 'examples'];
      return ['batch size', 'steps to loss 0.01', 'step', 'hours of training'].map((label) => m.columnOf(columns, label));
    },
    ["Batch_Size", "steps", "steps", null],
  ],
  "measured points are sorted, and repeated ones kept": [
    "overlay",
    async (m) => {
      const table = {name: 'x.csv', columns: ['step', 'loss', 'run'], rows: [['2', '5', 'a'], ['1', '6', 'a'], ['1', '7', 'a'], ['3', 'x', 'a'], ['1', '9', 'b']]};
      const panel = {x: {label: 'step'}, y: {label: 'loss of the network'}, lines: []};
      return m.measuredLines(table, panel).map((line) => [line.label, line.x, line.y]);
    },
    [["measured: a", [1, 2], [6, 5]], ["measured: a", [1], [7]], ["measured: b", [1], [9]]],
  ],
  "a CSV of the page itself is laid over": [
    "overlay",
    async (m) => {
      const table = {name: 'x.csv', columns: ['panel', 'series', 'x_name', 'x', 'y_name', 'y'], rows: [['p', 's', 'step', '1', 'loss', '2'], ['p', 's', 'h', '1', 'loss', '3']]};
      return m.measuredLines(table, {x: {label: 'step'}, y: {label: 'loss'}, lines: []}).map((line) => [line.label, line.x, line.y]);
    },
    [["measured: s", [1], [2]]],
  ],
});
