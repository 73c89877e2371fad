// Axes that several views share.

const ROOM = 1e3; // times the initial loss: what a run that diverges may take of the picture

/** The axis of losses. If a run diverges, the axis ends a little above the initial loss, so that the rest stays readable. */
export function lossAxis(...runs) {
  const diverges = runs.some((run) => run.outcome === "diverged" && Math.max(...run.loss) > ROOM * run.initial_loss);
  return { label: "loss", scale: "log", air: 0.08, below: 0.1, ...(diverges ? { max: ROOM * runs[0].initial_loss } : {}) };
}
