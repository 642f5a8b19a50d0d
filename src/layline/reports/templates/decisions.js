"use strict";
// Controls: the threshold, and the error that may remain after review.
(() => {
  const byId = (id) => document.getElementById(id);

  function chooseThreshold(event) {
    const chosen = event.target.value;
    document.querySelectorAll("[data-threshold]").forEach((each) => {
      each.hidden = each.dataset.threshold !== chosen;
    });
    const curve = report.thresholds[Number(chosen) - 1];
    if (!curve || !report.figures.roc) return;
    report.figures.roc = curve;
    drawFigure("roc");
  }
  byId("threshold")?.addEventListener("change", chooseThreshold);

  const { curves, coverage, samples } = report.referral;
  const slider = byId("wanted");
  const field = byId("wanted-number");
  const measure = () => document.querySelector("#measure input:checked").value;
  // unit and decimals
  const KINDS = { error: { factor: 100, decimals: 1 }, mae: { factor: 1, decimals: 2 } };
  const ROUNDING = 1e-6; // that of the curve

  function sentence(kind, wanted, decided) {
    const { factor, decimals } = KINDS[kind];
    const goal = (factor * wanted).toFixed(decimals);
    const start = kind === "error" ? `To have at most ${goal}\u00a0% errors`
      : `To be at most ${goal} classes off on average`;
    const cases = samples - decided;
    const all = samples.toLocaleString("en");
    if (cases === 0) return `${start}, no case has to be reviewed.`;
    const rounded = Math.round((100 * cases) / samples);
    const share = decided === 0 ? 100 : Math.min(99, Math.max(1, rounded));
    const count = decided === 0 ? `all ${all}` : `${cases.toLocaleString("en")} of ${all}`;
    return `${start}, a person must review ${count} (${share}\u00a0%).`;
  }

  function show() {
    const kind = measure();
    const wanted = Number(slider.value);
    const risks = curves[kind].data[0].y;
    const last = risks.findLastIndex((risk) => risk <= wanted + ROUNDING);
    const share = last < 0 ? 0 : coverage[last];
    byId("to-review").textContent = sentence(kind, wanted, Math.round(share * samples));
    const { factor, decimals } = KINDS[kind];
    slider.setAttribute("aria-valuetext", (factor * wanted).toFixed(decimals));
    const line = { type: "line", line: { color: "@ink", width: 1, dash: "dash" } };
    report.figures.referral = { ...curves[kind], layout: { ...curves[kind].layout, shapes: [
      { ...line, x0: share, x1: share, y0: 0, y1: 1, yref: "paper" },
      { ...line, x0: 0, x1: 1, xref: "paper", y0: wanted, y1: wanted },
    ] } };
    drawFigure("referral");
  }

  function chooseMeasure() {
    const kind = measure();
    const { factor, decimals } = KINDS[kind];
    const risks = curves[kind].data[0].y;
    const step = 10 ** -decimals / factor;
    const most = Math.ceil(risks[risks.length - 1] / step - ROUNDING) * step;
    for (const [input, scale] of [[slider, 1], [field, factor]]) {
      input.step = String(step * scale);
      input.max = String(most * scale);
    }
    byId("wanted-unit").textContent = kind === "error" ? "% wrong" : "classes off";
    slider.value = String(most / 2);
    field.value = (factor * Number(slider.value)).toFixed(decimals);
    show();
  }

  slider.addEventListener("input", () => {
    const { factor, decimals } = KINDS[measure()];
    field.value = (factor * Number(slider.value)).toFixed(decimals);
    show();
  });
  field.addEventListener("input", () => {
    if (field.value === "" || Number(field.value) < 0) return;
    slider.value = String(Number(field.value) / KINDS[measure()].factor);
    show();
  });
  byId("measure").addEventListener("change", chooseMeasure);
  chooseMeasure();
})();
