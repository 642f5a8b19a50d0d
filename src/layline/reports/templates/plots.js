"use strict";
// Draws the figures of the page in the colors of its theme.
const report = JSON.parse(document.getElementById("report-data").textContent);
const isColor = /color$|colorscale$/;

function painted(value, key = "") {
  if (Array.isArray(value)) return value.map((each) => painted(each));
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, painted(v, k)]));
  }
  const named = typeof value === "string" && value.startsWith("@") && isColor.test(key);
  return named ? theme.color(value.slice(1)) : value;
}

function framed(layout) {
  const axis = {
    gridcolor: theme.color("grid"), linecolor: theme.color("grid"), zeroline: false,
    automargin: true, fixedrange: true, ticklabeloverflow: "allow", tickfont: { size: 11 }, title: { standoff: 8 },
  };
  const whole = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true,
    font: { family: "system-ui, sans-serif", size: 12, color: theme.color("ink") },
    margin: { l: 46, r: 12, t: 44, b: 40 }, showlegend: false, dragmode: false,
    legend: { orientation: "h", x: 1, xanchor: "right", y: 1.02, yanchor: "bottom",
      bgcolor: "rgba(0,0,0,0)" },
    hoverlabel: { bgcolor: theme.color("card"), bordercolor: theme.color("edge"),
      font: { color: theme.color("ink") } },
    ...layout,
  };
  if (layout.title) {
    whole.title = { x: 0, xanchor: "left", xref: "paper", y: 0.98, yanchor: "top", yref: "container",
      font: { size: 14 }, ...layout.title };
  }
  for (const name of ["xaxis", "yaxis", ...Object.keys(layout).filter((k) => /^[xy]axis\d/.test(k))]) {
    const own = layout[name] || {};
    whole[name] = { ...axis, ...own, title: { ...axis.title, ...own.title } };
  }
  return whole;
}

const quiet = { displayModeBar: false, responsive: true };

function drawFigure(name) {
  const figure = painted(report.figures[name]);
  Plotly.react(`plot-${name}`, figure.data, framed(figure.layout), quiet);
}

function drawAll() {
  document.querySelectorAll("[data-figure]").forEach((each) => drawFigure(each.dataset.figure));
}

drawAll();
theme.onChange(drawAll);

// The section being read is marked in the table of contents.
const links = new Map([...document.querySelectorAll(".contents a")].map((a) => [a.hash.slice(1), a]));
const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((each) => each.isIntersecting)) {
    links.forEach((link) => link.removeAttribute("aria-current"));
    links.get(entry.target.id)?.setAttribute("aria-current", "true");
  }
}, { rootMargin: "-20% 0px -70% 0px" });
document.querySelectorAll("main section").forEach((section) => watcher.observe(section));
