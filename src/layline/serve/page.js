"use strict";
// Sends what is dropped to the server, a few at a time, and shows what comes back.
(() => {
  const AT_ONCE = 2; // requests under way
  const IN_A_REQUEST = 16; // files of one, so that answers come soon
  const SHOWN = 24; // cards, until more are asked for
  const FEW_CLASSES = 10; // that have a line each; more are drawn as thin bars
  const SVG = "http://www.w3.org/2000/svg";
  // as in the reports: each theme leaves out the end that its background hides
  const VIRIDIS = ["#440154", "#482475", "#414487", "#355f8d", "#2a788e", "#21918c", "#22a884",
    "#44bf70", "#7ad151", "#bddf26", "#fde725"];
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const byId = (id) => document.getElementById(id);
  const samples = []; // in the order in which they came
  let model = null;
  let shown = SHOWN;
  let waiting = [];
  let underway = 0;

  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (value !== null && value !== undefined) made.setAttribute(key, value);
    }
    made.append(...children);
    return made;
  }

  function drawn(name, attributes = {}, ...children) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)}\u00a0%`;
  const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
  const short = (text, most) => (text.length <= most ? text : `${text.slice(0, most - 1)}…`);
  const isTable = () => model.inputs.kind === "table";
  const noun = () => (isTable() ? "row" : "image");

  function colour(rank) {
    const scale = dark.matches ? VIRIDIS.slice(3) : VIRIDIS.slice(0, 9);
    const place = (rank / (model.classes.length - 1)) * (scale.length - 1);
    const low = Math.min(Math.floor(place), scale.length - 2);
    const parts = [1, 3, 5].map((at) => {
      const [a, b] = [low, low + 1].map((i) => parseInt(scale[i].slice(at, at + 2), 16));
      return Math.round(a + (place - low) * (b - a));
    });
    return `rgb(${parts.join(" ")})`;
  }

  // --- the model

  function introduce() {
    const classes = model.classes;
    document.title = `${model.name} · Layline`;
    byId("title").textContent = model.name;
    byId("method").textContent = `${model.method} on ${model.backbone}`;
    byId("version").textContent = model.version;
    const trained = model.trained_on &&
      Object.values(model.trained_on).reduce((sum, count) => sum + count, 0);
    const said = [`It grades ${isTable() ? "rows of a table" : "images"} on a scale of ` +
      `${classes.length} classes, from ${classes[0]} to ${classes[classes.length - 1]}.`];
    if (trained) said.push(`It learned from ${plural(trained, noun())}.`);
    if (model.tested) {
      said.push(`Of ${plural(model.tested.samples, noun())} that it had not seen, it got ` +
        `${percent(model.tested.accuracy)} right and was off by ${model.tested.mae.toFixed(2)} ` +
        "classes on average.");
    }
    byId("about").textContent = said.join(" ");
    showScale();
    dark.addEventListener("change", () => {
      showScale();
      show();
    });
    const large = `${(model.limits.bytes / 1e6).toLocaleString("en")} MB`;
    if (isTable()) {
      const names = model.inputs.columns.map((column) => column.name);
      byId("invitation").textContent = "Drop a CSV file here";
      byId("choose").textContent = "Choose a CSV file";
      byId("limits").textContent = `It needs the ${names.length === 1 ? "column" : "columns"} ` +
        `${names.slice(0, 12).join(", ")}${names.length > 12 ? ` and ${names.length - 12} more` : ""}. ` +
        `Up to ${model.limits.rows.toLocaleString("en")} rows and ${large}.`;
      byId("files").accept = ".csv,.tsv,.txt,text/csv";
      byId("named").textContent = "row";
    } else {
      byId("invitation").textContent = "Drop one image here, or many";
      byId("choose").textContent = "Choose images";
      byId("limits").textContent = `Up to ${large} and ${model.limits.pixels / 1e6} million pixels each. ` +
        "An image can be pasted, too.";
      byId("files").accept = ["image/*", ...model.inputs.suffixes].join(",");
      byId("named").textContent = "image";
      byId("camera").hidden = false;
    }
    const howto = ["Bars are how likely each class is."];
    if (model.coverage !== null) {
      howto.push(`The range holds the true class in ${percent(model.coverage)} of such cases.`);
    }
    if (model.review) {
      howto.push(`A person should look where the model is as unsure as in the least certain ` +
        `${percent(model.review.share)} of its test: ${percent(model.review.at_most)} or less.`);
    }
    howto.push({
      plane: "The picture shows where the model puts a sample among the classes, which are joined in " +
        `their order: ${model.layout.by_direction ? "the direction tells the class, and a mark near the middle is undecided" : "the nearer a class, the likelier"}.`,
      line: "The picture shows where the model puts a sample on its line of classes.",
      mean: "This method has no places for classes: the picture shows the mean of the distribution.",
    }[model.layout.kind]);
    byId("reading").textContent = howto.join(" ");
  }

  function showScale() {
    const classes = model.classes;
    byId("scale").replaceChildren();
    const most = 24;
    classes.forEach((name, rank) => {
      if (classes.length > most && rank >= most - 1 && rank < classes.length - 1) {
        if (rank === most - 1) byId("scale").append(element("li", {}, `… ${classes.length - most} more …`));
        return;
      }
      const item = element("li", { title: name }, short(name, 40));
      item.style.setProperty("--rank", colour(rank));
      const count = model.trained_on?.[name];
      if (count !== undefined) {
        item.append(element("span", { class: "share", title: "samples that it learned from" },
          plural(count, noun())));
      }
      byId("scale").append(item);
    });
  }

  // --- sending

  function add(files) {
    if (!model || !files.length) return;
    if (isTable()) {
      for (const file of files) {
        if (refused(file)) continue;
        waiting.push({ files: [file], samples: null });
      }
    } else {
      let group = [];
      let bytes = 0;
      const flush = () => {
        if (group.length) waiting.push({ files: group.map((each) => each.file), samples: group });
        group = [];
        bytes = 0;
      };
      for (const file of files) {
        if (refused(file)) continue;
        const sample = { file, name: file.name || "pasted image", url: URL.createObjectURL(file) };
        samples.push(sample);
        const full = Math.min(IN_A_REQUEST, model.limits.files);
        if (group.length >= full || bytes + file.size > 0.9 * model.limits.bytes) flush();
        group.push(sample);
        bytes += file.size + 1000;
      }
      flush();
    }
    show();
    send();
  }

  function refused(file) {
    if (file.size + 1000 <= model.limits.bytes) return false;
    samples.push({ name: file.name, error: `${file.name} is too large: ` +
      `${(file.size / 1e6).toFixed(1)} MB, more than ${model.limits.bytes / 1e6}` });
    return true;
  }

  async function send() {
    while (waiting.length && underway < AT_ONCE) {
      const request = waiting.shift();
      underway += 1;
      tell();
      ask(request).finally(() => {
        underway -= 1;
        show();
        send();
      });
    }
    tell();
  }

  async function ask(request) {
    const form = new FormData();
    for (const file of request.files) form.append("files", file, file.name || "pasted image");
    let answer;
    try {
      const response = await fetch("predict", { method: "POST", body: form });
      answer = await response.json();
    } catch {
      answer = { error: "The server does not answer: is it still running?" };
    }
    if (request.samples === null) { // the rows of a table
      const file = request.files[0];
      for (const each of answer.predictions ?? [{ name: file.name, error: answer.error }]) samples.push(each);
    } else {
      request.samples.forEach((sample, i) => {
        Object.assign(sample, answer.predictions?.[i] ?? { error: answer.error }, { name: sample.name });
      });
    }
  }

  // --- showing

  const graded = () => samples.filter((each) => each.predicted !== undefined);

  function tell() {
    const done = graded();
    const bad = samples.filter((each) => each.error).length;
    const open = samples.length - done.length - bad;
    const look = done.filter((each) => each.review).length;
    const status = byId("status");
    status.classList.toggle("busy", underway > 0);
    const said = [];
    if (underway) said.push(open ? `Grading ${plural(open, noun())} …` : "Grading …");
    if (done.length) said.push(`${plural(done.length, noun())} graded.`);
    if (look) said.push(`A person should look at ${look} of them.`);
    if (bad) said.push(`${plural(bad, isTable() ? "file or row" : "file")} could not be graded.`);
    status.textContent = said.join(" ");
  }

  function ordered() {
    const by = {
      given: () => 0,
      sure: (a, b) => (a.confidence ?? 2) - (b.confidence ?? 2),
      low: (a, b) => (a.rank ?? Infinity) - (b.rank ?? Infinity) || a.confidence - b.confidence,
      high: (a, b) => (b.rank ?? -1) - (a.rank ?? -1) || a.confidence - b.confidence,
    }[byId("order").value];
    return [...samples].sort(by);
  }

  function show() {
    tell();
    const answered = samples.some((each) => each.predicted !== undefined || each.error);
    byId("results").hidden = !answered;
    byId("drop").classList.toggle("used", answered);
    if (!answered) return;
    const all = ordered().filter((each) => each.predicted !== undefined || each.error);
    byId("cards").replaceChildren(...all.slice(0, shown).map(card));
    byId("more").hidden = all.length <= shown;
    byId("more").textContent = `Show ${Math.min(SHOWN, all.length - shown)} more of ${all.length}`;
    byId("rows").replaceChildren(...all.slice(0, 5000).map(row));
    byId("download").disabled = graded().length === 0;
  }

  function card(sample) {
    const made = element("li", { class: `sample${isTable() ? " table" : ""}` });
    if (sample.error) {
      made.classList.add("failed");
      made.append(element("p", {}, sample.error));
      return made;
    }
    if (!isTable()) made.append(picture(sample));
    const words = element("div", { class: "words" },
      element("p", { class: "name", title: sample.name }, short(sample.name, 60)),
      element("p", { class: "grade" }, short(sample.predicted, 40), " ",
        element("small", {}, `${percent(sample.confidence)} sure`)));
    if (sample.low !== null) {
      const range = sample.low === sample.high ? [element("b", {}, short(sample.low, 40)), " only"]
        : [element("b", {}, short(sample.low, 40)), " to ", element("b", {}, short(sample.high, 40))];
      words.append(element("p", { class: "range" }, "Range at ", percent(model.coverage), ": ", ...range));
    }
    if (sample.review !== null) {
      made.classList.toggle("look", sample.review);
      words.append(element("p", { class: `mark${sample.review ? " yes" : ""}` },
        sample.review ? "⚠ A person should look" : "✓ No second look needed"));
    }
    made.append(words, element("div", { class: "details" }, distribution(sample)), where(sample));
    return made;
  }

  function picture(sample) {
    if (!sample.url || sample.unseen) return element("div", { class: "nothing" }, "This browser cannot show it");
    const image = element("img", { class: "picture", src: sample.url, alt: `The image ${sample.name}` });
    image.addEventListener("error", () => {
      sample.unseen = true;
      image.replaceWith(picture(sample));
    });
    return image;
  }

  function ends(sample) {
    if (sample.low === null) return null;
    return [model.classes.indexOf(sample.low), model.classes.indexOf(sample.high)];
  }

  function distribution(sample) {
    const shares = model.classes.map((name) => sample.probabilities[name]);
    return shares.length <= FEW_CLASSES ? lines(sample, shares) : bars(sample, shares);
  }

  function lines(sample, shares) {
    const range = ends(sample);
    const list = element("dl", { class: "shares" });
    shares.forEach((share, rank) => {
      const said = rank === sample.rank ? " said" : "";
      const within = range && rank >= range[0] && rank <= range[1] ? " within" : "";
      const fill = drawn("svg", { viewBox: "0 0 100 1", preserveAspectRatio: "none", "aria-hidden": "true" },
        drawn("rect", { class: "fill", width: Math.max(100 * share, 0.6), height: 1 }));
      list.append(element("dt", { class: said.trim(), title: model.classes[rank] }, short(model.classes[rank], 30)),
        element("dd", {}, element("span", { class: `track${said}${within}` }, fill),
          element("span", { class: `number${said}` }, percent(share, 1))));
    });
    return list;
  }

  function bars(sample, shares) {
    const step = 240 / shares.length;
    const largest = Math.max(...shares);
    const range = ends(sample);
    const figure = drawn("svg", { class: "bars", viewBox: "0 0 240 64", preserveAspectRatio: "none", role: "img",
      "aria-label": `Probabilities by class, ${percent(sample.confidence, 1)} for ${sample.predicted}` });
    if (range) {
      figure.append(drawn("rect", { class: "range", x: range[0] * step, y: 0,
        width: (range[1] - range[0] + 1) * step, height: 60 }));
    }
    shares.forEach((share, rank) => {
      const height = Math.max((58 * share) / largest, 0.8);
      figure.append(drawn("rect", { class: rank === sample.rank ? "said" : "other", x: (rank + 0.08) * step,
        y: 60 - height, width: 0.84 * step, height },
      drawn("title", {}, `${model.classes[rank]}: ${percent(share, 1)}`)));
    });
    figure.append(drawn("line", { class: "floor", x1: 0, x2: 240, y1: 60.5, y2: 60.5 }));
    return element("div", {}, figure, element("div", { class: "ends" },
      element("span", {}, short(model.classes[0], 24)),
      element("span", {}, short(model.classes[shares.length - 1], 24))));
  }

  // --- where a sample lies

  const WIDTH = 240;
  let frame = null;

  function view() {
    if (frame) return frame;
    const { proxies, kind, by_direction: byDirection } = model.layout;
    const marks = [...proxies];
    if (byDirection) marks.push([0, 0]);
    const [xs, ys] = [0, 1].map((axis) => marks.map((mark) => mark[axis]));
    const low = [Math.min(...xs), Math.min(...ys)];
    const high = [Math.max(...xs), Math.max(...ys)];
    const span = Math.max(high[0] - low[0], high[1] - low[1]) || 1;
    const pad = (kind === "plane" ? 0.14 : 0.09) * span;
    const scale = (WIDTH - 2) / (high[0] - low[0] + 2 * pad || 1);
    const tall = kind === "plane" ? (high[1] - low[1]) * scale : 0;
    frame = { scale, height: Math.min(Math.max(tall + 56, 64), 260), low: [low[0] - pad, low[1]],
      middle: (low[1] + high[1]) / 2 };
    return frame;
  }

  function at([x, y]) {
    const { scale, height, low, middle } = view();
    const clamp = (value, most) => Math.min(Math.max(value, 10), most - 10);
    return [clamp((x - low[0]) * scale, WIDTH), clamp(height / 2 - (y - middle) * scale, height)];
  }

  function where(sample) {
    const { proxies, kind, by_direction: byDirection } = model.layout;
    const { height } = view();
    const places = proxies.map(at);
    const few = proxies.length <= 7;
    const figure = drawn("svg", { class: "map", viewBox: `0 0 ${WIDTH} ${height}`, role: "img",
      "aria-label": `Where it lies among the classes: nearest to ${nearest(sample)}` });
    figure.append(drawn("path", { class: "way", d: way(proxies, byDirection) }));
    for (const other of graded().slice(-200)) {
      if (other === sample) continue;
      const [x, y] = at(other.place);
      figure.append(drawn("circle", { class: "other", cx: x, cy: y, r: 2.2 }));
    }
    places.forEach(([x, y], rank) => {
      const dot = drawn("circle", { class: "class", cx: x, cy: y, r: few ? 6.5 : 4 },
        drawn("title", {}, model.classes[rank]));
      dot.style.fill = colour(rank);
      figure.append(dot);
    });
    const edge = [0, proxies.length - 1];
    const named = few ? places.keys() : edge;
    for (const rank of named) {
      const [x, y] = places[rank];
      const end = rank === 0 ? "start" : rank === proxies.length - 1 ? "end" : "middle";
      const left = { start: Math.max(x - 7, 1), middle: x, end: Math.min(x + 7, WIDTH - 1) }[end];
      const above = kind === "plane" ? y < height / 2 : rank % 2 === 0; // away from the marks
      const text = drawn("text", { x: left, y: above ? y - 12 : y + 21, "text-anchor": end,
        class: rank === sample.rank ? "near" : "" });
      text.textContent = short(model.classes[rank], few ? 13 : 20);
      figure.append(text);
    }
    const [x, y] = at(sample.place);
    figure.append(drawn("circle", { class: "halo", cx: x, cy: y, r: 8 }),
      drawn("circle", { class: "here", cx: x, cy: y, r: 4 }));
    return element("div", { class: "where" }, figure);
  }

  function nearest(sample) {
    const { proxies } = model.layout;
    const gap = ([x, y]) => Math.hypot(x - sample.place[0], y - sample.place[1]);
    return model.classes[proxies.reduce((best, mark, rank) =>
      (gap(mark) < gap(proxies[best]) ? rank : best), 0)];
  }

  function way(proxies, byDirection) {
    const points = [];
    proxies.slice(1).forEach((end, i) => {
      const start = proxies[i];
      for (let t = 0; t < 1; t += byDirection ? 0.05 : 1) {
        const mixed = [0, 1].map((axis) => start[axis] + t * (end[axis] - start[axis]));
        // along the circle, whose points have the length of its proxies
        const wanted = Math.hypot(...start) + t * (Math.hypot(...end) - Math.hypot(...start));
        const length = Math.hypot(...mixed);
        points.push(byDirection && length > 1e-9 ? mixed.map((each) => (each * wanted) / length) : mixed);
      }
    });
    points.push(proxies[proxies.length - 1]);
    return `M${points.map((point) => at(point).map((each) => each.toFixed(1)).join(" ")).join("L")}`;
  }

  // --- the table, and the same as CSV

  function row(sample) {
    const made = element("tr", {}, element("th", { scope: "row" }, short(sample.name ?? "", 80)));
    if (sample.error) {
      made.append(element("td", { class: "why", colspan: 4 }, sample.error));
      return made;
    }
    const range = sample.low === null ? "–" : sample.low === sample.high ? sample.low
      : `${short(sample.low, 24)} – ${short(sample.high, 24)}`;
    const look = sample.review === null ? "–" : sample.review ? "yes" : "no";
    made.append(element("td", {}, short(sample.predicted, 40)), element("td", {}, percent(sample.confidence)),
      element("td", {}, range), element("td", { class: sample.review ? "yes" : "" }, look));
    return made;
  }

  // as layline/prediction_file.py writes it: no spreadsheet shall take a text for a formula
  const FORMULA = /^'*(\.\/'*)?[=+\-@\t\r]/;
  const NUMBER = /^[+-](\d+[.,]?\d*|[.,]\d+)?(e[+-]?\d+)?$/i;
  function safe(text, isPath = false) {
    if (!FORMULA.test(text) || (!isPath && (text === "=" || NUMBER.test(text)))) return text;
    return isPath ? `./${text}` : `'${text}`;
  }
  const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

  function csv() {
    const ranges = model.coverage !== null ? ["low", "high"] : [];
    const review = model.review ? ["review"] : [];
    const header = ["path", "predicted", ...ranges, "confidence", ...review,
      ...model.classes.map((name) => `p_${name}`)];
    const lines = graded().map((each) => [
      safe(each.name, !isTable()), safe(each.predicted), ...ranges.map((end) => safe(each[end])),
      String(each.confidence), ...review.map(() => String(each.review)),
      ...model.classes.map((name) => String(each.probabilities[name])),
    ]);
    return [header, ...lines].map((cells) => `${cells.map(quoted).join(",")}\n`).join("");
  }

  byId("download").addEventListener("click", () => {
    const url = URL.createObjectURL(new Blob([csv()], { type: "text/csv" }));
    element("a", { href: url, download: `${model.name}-grades.csv` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  });

  // --- what a person does

  byId("choose").addEventListener("click", () => byId("files").click());
  for (const id of ["files", "shot"]) {
    byId(id).addEventListener("change", (event) => {
      add([...event.target.files]);
      event.target.value = "";
    });
  }
  byId("order").addEventListener("change", show);
  byId("more").addEventListener("click", () => {
    shown += SHOWN;
    show();
  });
  byId("clear").addEventListener("click", () => {
    samples.forEach((each) => each.url && URL.revokeObjectURL(each.url));
    samples.length = 0;
    waiting = [];
    shown = SHOWN;
    show();
    byId("choose").focus();
  });

  const drop = byId("drop");
  let inside = 0;
  const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  window.addEventListener("dragenter", (event) => {
    if (!hasFiles(event)) return;
    inside += 1;
    drop.classList.add("over-it");
  });
  window.addEventListener("dragleave", () => {
    inside = Math.max(inside - 1, 0);
    if (!inside) drop.classList.remove("over-it");
  });
  window.addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault());
  window.addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault(); // anywhere on the page, or the browser would leave it
    inside = 0;
    drop.classList.remove("over-it");
    add([...event.dataTransfer.files]);
  });
  window.addEventListener("paste", (event) => add([...(event.clipboardData?.files ?? [])]));

  // --- the camera: in the page where that is allowed, else the one of the phone

  const video = byId("video");
  const viewfinder = byId("viewfinder");
  let photos = 0;
  const isPhone = window.matchMedia("(pointer: coarse)").matches;
  byId("camera").addEventListener("click", async () => {
    if (isPhone || !navigator.mediaDevices?.getUserMedia) {
      byId("shot").click();
      return;
    }
    try {
      const wanted = { video: { facingMode: "environment", width: { ideal: 1920 } } };
      video.srcObject = await navigator.mediaDevices.getUserMedia(wanted);
      viewfinder.showModal();
    } catch {
      byId("status").textContent = "No camera can be used: there is none, or the browser was told not to.";
    }
  });
  byId("take").addEventListener("click", () => {
    if (!video.videoWidth) return;
    const canvas = element("canvas", { width: video.videoWidth, height: video.videoHeight });
    canvas.getContext("2d").drawImage(video, 0, 0);
    canvas.toBlob((blob) => {
      photos += 1;
      add([new File([blob], `photo ${photos}.jpg`, { type: "image/jpeg" })]);
      viewfinder.close();
    }, "image/jpeg", 0.95);
  });
  byId("leave").addEventListener("click", () => viewfinder.close());
  viewfinder.addEventListener("close", () => {
    video.srcObject?.getTracks().forEach((track) => track.stop());
    video.srcObject = null;
  });

  fetch("model").then((response) => response.json()).then((about) => {
    model = about;
    introduce();
  }).catch(() => {
    byId("title").textContent = "The server does not answer";
  });
})();
