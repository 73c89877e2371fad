// Several scripts of the server as one: with imports and problems once, and numbered answers.

export function together(scripts) {
  if (scripts.length < 2) return scripts.join("");
  const imports = new Map();
  const lines = [];
  scripts.forEach((script, i) => {
    for (const line of script.split("\n")) {
      const found = /^from (\S+) import (.*)$/.exec(line);
      if (found) {
        const names = imports.get(found[1]) ?? new Set();
        found[2].split(", ").forEach((name) => names.add(name));
        imports.set(found[1], names);
      } else if (line && !lines.includes(line)) lines.push(line.replace(/^answer = /, `answer_${i + 1} = `));
    }
  });
  const heads = [...imports].sort().map(([module, names]) => `from ${module} import ${[...names].sort().join(", ")}`);
  return [...heads, "", ...lines].join("\n");
}
