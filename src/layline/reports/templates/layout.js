"use strict";
// The layout: features and proxies by epoch. Points move smoothly between epochs.
(() => {
  const place = document.getElementById("layout-plot");
  if (!place) return;
  const { validation, test, start, classes, ticks, last } = report.layout;
  const slider = document.getElementById("epoch");
  const play = document.getElementById("play");
  const still = window.matchMedia("(prefers-reduced-motion: reduce)");
  const SLOW = 80; // milliseconds; if drawing takes longer, points jump
  const byId = (id) => document.getElementById(id);
  const isShown = (id) => byId(id)?.checked ?? false;

  const numbers = (text, Kind) =>
    new Kind(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);

  function unpacked(frame, ranks) {
    const flat = numbers(frame.points, Int16Array);
    const points = Array.from(flat, (value) => value * frame.scale);
    return { ...frame, points, ranks, predicted: numbers(frame.predicted, Uint16Array) };
  }

  const commonRanks = validation.length ? numbers(report.layout.ranks, Uint16Array) : null;
  const frames = validation.map((frame) => unpacked(frame, commonRanks));
  const tested = test && unpacked(test, numbers(test.ranks, Uint16Array));
  let part = frames.length ? "validation" : "test";
  let current = start;
  let moving = 0;

  const target = () => (part === "test" ? tested : frames[current]);
  const mixed = (a, b, t) => a.map((value, i) => value + t * (b[i] - value));

  function between(a, b, t) {
    if (t >= 1 || !a || a.points.length !== b.points.length) return b;
    return {
      ...b,
      points: mixed(a.points, b.points, t),
      proxies: b.proxies && b.proxies.map((at, k) => mixed(a.proxies[k], at, t)),
      view: b.view.map((range, i) => mixed(a.view[i], range, t)),
    };
  }

  function traces(frame) {
    const groups = [true, false].map(() => ({ x: [], y: [], color: [], custom: [] }));
    for (let i = 0; i < frame.ranks.length; i += 1) {
      const rank = frame.ranks[i];
      const predicted = frame.predicted[i];
      const group = groups[predicted === rank ? 0 : 1];
      group.x.push(frame.points[2 * i]);
      group.y.push(frame.points[2 * i + 1]);
      group.color.push(rank);
      group.custom.push([classes[rank], classes[predicted], frame.names?.[i] ?? ""]);
    }
    const scale = { cmin: 0, cmax: classes.length - 1, colorscale: theme.color("sequential") };
    const narrow = place.clientWidth < 560;
    const named = classes.length <= 12;
    const bar = narrow ? { orientation: "h", y: 0, yanchor: "top", len: 0.95 }
      : { x: 1.01, xpad: 4, len: 0.9 };
    const hover = "true %{customdata[0]}<br>predicted %{customdata[1]}" +
      (frame.names?.length ? "<br>%{customdata[2]}" : "") + "<extra></extra>";
    const cloud = (group, more) => ({
      type: "scatter", mode: "markers", x: group.x, y: group.y, customdata: group.custom,
      hovertemplate: hover, ...more, marker: { ...scale, color: group.color, ...more.marker },
    });
    const found = [
      cloud(groups[0], { name: "correct", visible: isShown("show-correct"),
        marker: { size: narrow ? 4 : 6, opacity: 0.75, symbol: "circle" } }),
      cloud(groups[1], { name: "misclassified", visible: isShown("show-wrong"),
        marker: { size: narrow ? 5 : 7, opacity: 0.85, symbol: "x-thin",
          line: { ...scale, color: groups[1].color, width: 1.8 } } }),
      { // has the color scale, also when samples are hidden
        type: "scatter", mode: "markers", x: [null], y: [null], hoverinfo: "skip",
        marker: { ...scale, color: [0], showscale: true, colorbar: {
          thickness: 10, outlinewidth: 0, ...bar,
          tickvals: named ? classes.map((_, k) => k) : undefined,
          ticktext: named ? ticks.map((name, k) => (narrow || name === String(k) ? String(k)
            : `${k} ${name}`)) : undefined,
          tickfont: { size: 11 } } },
      },
    ];
    if (frame.proxies) {
      const few = classes.length <= 30;
      found.push({
        type: "scatter", mode: few ? "lines+markers+text" : "lines+markers", name: "proxies",
        visible: isShown("show-proxies"),
        x: frame.proxies.map((at) => at[0]), y: frame.proxies.map((at) => at[1]),
        text: frame.proxies.map((_, k) => String(k)),
        textfont: { size: narrow ? 9 : 11, color: theme.color("ink"), weight: 700 },
        customdata: classes, hovertemplate: "proxy %{text}: %{customdata}<extra></extra>",
        line: { color: theme.color("ink"), width: 1.2 },
        marker: { size: few ? (narrow ? 16 : 21) : 8, color: theme.color("card"),
          line: { width: 2.4, ...scale, color: frame.proxies.map((_, k) => k) } },
      });
    }
    return found;
  }

  let cost = 0; // milliseconds that the last drawing took
  function draw(frame) {
    const began = performance.now();
    const free = { showticklabels: false, ticks: "", showgrid: true, fixedrange: false };
    const coarse = window.matchMedia("(pointer: coarse)").matches;
    const layout = framed({
      // room for the buttons above the color scale
      margin: { l: 8, r: 8, t: coarse ? 12 : 36, b: 8 }, dragmode: coarse ? false : "pan",
      hovermode: "closest", uirevision: part,
      modebar: { bgcolor: "rgba(0,0,0,0)", color: theme.color("muted"),
        activecolor: theme.color("accent") },
      xaxis: { ...free, range: frame.view[0], zeroline: false },
      yaxis: { ...free, range: frame.view[1], scaleanchor: "x", zeroline: false },
    });
    Plotly.react(place, traces(frame), layout, {
      responsive: true, displaylogo: false, displayModeBar: coarse ? false : "hover",
      modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
    });
    cost = performance.now() - began;
  }

  function tell() {
    const frame = target();
    const share = (value) => (value === null || value === undefined ? "–"
      : `${(100 * value).toFixed(1)} %`);
    const error = frame.mae === null || frame.mae === undefined ? "–" : frame.mae.toFixed(3);
    const what = part === "test" ? (frame.epoch ? `Test, epoch ${frame.epoch}` : "Evaluated samples")
      : `Validation, epoch ${frame.epoch} of ${last}${current === start ? " (selected)" : ""}`;
    byId("moment").textContent = `${what} · MAE ${error} · accuracy ${share(frame.accuracy)}`;
    slider.setAttribute("aria-valuetext", `epoch ${frame.epoch} of ${last}`);
    slider.value = String(current);
    byId("player").hidden = part === "test" || frames.length < 2;
    const explained = byId("explained");
    if (explained) {
      explained.textContent = `it shows ${share(frame.explained)} of the variance of these features.`;
    }
  }

  let drawn = null;
  function show(glide) {
    const goal = target();
    const from = drawn;
    const token = (moving += 1);
    tell();
    drawn = goal;
    delete place.dataset.moving;
    if (!glide || still.matches || !from || cost > SLOW) return draw(goal);
    place.dataset.moving = "true";
    const began = performance.now();
    const step = (now) => {
      if (token !== moving) return;
      const t = Math.min(1, (now - began) / 350);
      draw(between(from, goal, t * t * (3 - 2 * t)));
      if (t < 1) requestAnimationFrame(step);
      else delete place.dataset.moving;
    };
    requestAnimationFrame(step);
    return undefined;
  }

  let timer = null;
  function stop() {
    clearInterval(timer);
    timer = null;
    play.setAttribute("aria-pressed", "false");
    play.querySelector(".word").textContent = "Play";
    play.querySelector("[aria-hidden]").textContent = "▶";
  }

  play.addEventListener("click", () => {
    if (timer !== null) return stop();
    play.setAttribute("aria-pressed", "true");
    play.querySelector(".word").textContent = "Pause";
    play.querySelector("[aria-hidden]").textContent = "❚❚";
    if (current === frames.length - 1) current = 0;
    show(false);
    timer = setInterval(() => {
      if (current === frames.length - 1) return stop();
      current += 1;
      return show(true);
    }, 600);
    return undefined;
  });
  slider.max = String(Math.max(frames.length - 1, 0));
  slider.addEventListener("input", () => {
    stop();
    current = Number(slider.value);
    show(true);
  });
  byId("part").addEventListener("change", (event) => {
    stop();
    part = event.target.value;
    show(false);
  });
  ["show-correct", "show-wrong", "show-proxies"].forEach((id) =>
    byId(id)?.addEventListener("change", () => draw(target())));
  theme.onChange(() => draw(target()));
  show(false);
})();
