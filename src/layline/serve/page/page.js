"use strict";
// Sends dropped files to the server, a few at a time, and shows the predictions.
(() => {
  const REQUESTS = 2; // at the same time
  const FILES = 16; // in one request, so that the first predictions arrive soon
  const SHOWN = 24; // cards, until more are requested
  const FEW_CLASSES = 10; // get a labelled line each; more are drawn as thin bars
  const SVG = "http://www.w3.org/2000/svg";
  const byId = (id) => document.getElementById(id);
  const samples = [];
  let model = null;
  let shown = SHOWN;
  let waiting = [];
  let running = 0;

  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  function shape(name, attributes = {}, ...children) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)}\u00a0%`;
  const short = (text, most) => (text.length <= most ? text : `${text.slice(0, most - 1)}…`);
  const isTable = () => model.kind === "table";
  const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
  const noun = () => (isTable() ? "row" : "image");
  const graded = () => samples.filter((each) => each.predicted !== undefined);

  function describeModel() {
    const { classes, limits } = model;
    document.title = `${model.name} · Layline`;
    byId("title").textContent = model.name;
    byId("method").textContent = `${model.method} on ${model.backbone}`;
    byId("version").textContent = model.version;
    const about = [`This model grades ${noun()}s on a scale of ${classes.length} classes, from ` +
      `${classes[0]} to ${classes[classes.length - 1]}.`];
    if (model.tested) {
      about.push(`On ${plural(model.tested.samples, `test ${noun()}`)}, ` +
        `${percent(model.tested.accuracy)} of its grades were correct, and they were off by ` +
        `${model.tested.mae.toFixed(2)} classes on average.`);
    }
    byId("about").textContent = about.join(" ");
    const names = classes.length <= 24 ? classes
      : [...classes.slice(0, 23), `… ${classes.length - 24} more …`, classes[classes.length - 1]];
    byId("scale").replaceChildren(...names.map((name) => {
      const count = model.trained_on?.[name];
      const title = count === undefined ? name : `${name}: trained on ${plural(count, noun())}`;
      return element("li", { title }, short(name, 40));
    }));
    const reading = ["The bars are the probabilities of the classes."];
    if (model.coverage !== null) {
      reading.push(`The range contains the true class in ${percent(model.coverage)} of cases.`);
    }
    if (model.review !== null) {
      reading.push("A person should check grades with a confidence of at most " +
        `${percent(model.review_at_most)}, about ${percent(model.review)} of all.`);
    }
    byId("reading").textContent = reading.join(" ");
    byId("camera").hidden = isTable();
    if (isTable()) {
      const { columns } = model;
      const more = columns.length > 12 ? ` and ${columns.length - 12} more` : "";
      byId("invitation").textContent = "Drop a CSV file here";
      byId("choose").textContent = "Choose a CSV file";
      byId("limits").textContent = `Columns: ${columns.slice(0, 12).join(", ")}${more}. ` +
        `Up to ${limits.max_rows.toLocaleString("en")} rows and ${limits.max_mb} MB.`;
      byId("files").accept = ".csv,.tsv,.txt,text/csv";
    } else {
      byId("invitation").textContent = "Drop images here";
      byId("choose").textContent = "Choose images";
      byId("limits").textContent =
        `Up to ${limits.max_mb} MB and ${limits.max_pixels / 1e6} million pixels each.`;
      byId("files").accept = "image/*,.heic,.heif,.tif,.tiff";
    }
  }

  // --- sending

  function add(files) {
    if (!model || !files.length) return;
    const most = isTable() ? 1 : Math.min(FILES, model.limits.max_files);
    const bytes = 1e6 * model.limits.max_mb;
    let group = [];
    let size = 0;
    const flush = () => {
      if (group.length) waiting.push(group);
      group = [];
      size = 0;
    };
    for (const file of files) {
      const sample = { file, name: file.name || "pasted image" };
      samples.push(sample);
      if (file.size + 1000 > bytes) {
        sample.error = `${sample.name} is larger than ${model.limits.max_mb} MB`;
        continue;
      }
      if (!isTable()) sample.url = URL.createObjectURL(file);
      if (group.length >= most || size + file.size > 0.9 * bytes) flush();
      group.push(sample);
      size += file.size + 1000;
    }
    flush();
    show();
    send();
  }

  function send() {
    while (waiting.length && running < REQUESTS) {
      running += 1;
      predict(waiting.shift()).finally(() => {
        running -= 1;
        show();
        send();
      });
    }
    show();
  }

  async function predict(group) {
    const form = new FormData();
    for (const sample of group) form.append("file", sample.file, sample.name);
    let answer;
    try {
      const response = await fetch("predict", { method: "POST", body: form });
      answer = await response.json();
    } catch {
      answer = { detail: "The server does not answer. Is it still running?" };
    }
    const found = answer.predictions ?? group.map(() => ({ error: answer.detail }));
    if (isTable() && answer.predictions) {
      samples.splice(samples.indexOf(group[0]), 1, ...found);
    } else {
      group.forEach((sample, i) => Object.assign(sample, found[i], { name: sample.name }));
    }
  }

  // --- showing

  function show() {
    const done = graded();
    const failed = samples.filter((each) => each.error).length;
    const status = [];
    if (running) status.push("Grading …");
    if (done.length) status.push(`${plural(done.length, noun())} graded.`);
    const review = done.filter((each) => each.review).length;
    if (review) status.push(`A person should check ${review} of them.`);
    if (failed) status.push(`${failed} could not be graded.`);
    byId("status").textContent = status.join(" ");
    byId("status").classList.toggle("busy", running > 0);
    const all = samples.filter((each) => each.predicted !== undefined || each.error);
    byId("results").hidden = all.length === 0;
    byId("cards").replaceChildren(...all.slice(0, shown).map(card));
    byId("more").hidden = all.length <= shown;
    byId("more").textContent = `Show more of ${all.length}`;
    byId("download").disabled = done.length === 0;
  }

  function card(sample) {
    if (sample.error) {
      return element("li", { class: "card failed" }, `${short(sample.name, 60)}: ${sample.error}`);
    }
    const words = element("div", {},
      element("p", { class: "muted name", title: sample.name }, short(sample.name, 60)),
      element("p", { class: "grade" }, short(sample.predicted, 40), " ",
        element("small", {}, percent(sample.confidence))));
    if (sample.low !== null) {
      const range = sample.low === sample.high ? short(sample.low, 40)
        : `${short(sample.low, 40)} to ${short(sample.high, 40)}`;
      words.append(element("p", {}, `Range at ${percent(model.coverage)}: ${range}`));
    }
    if (sample.review) words.append(element("p", { class: "mark" }, "⚠ A person should check this"));
    const kind = `card${isTable() ? " table" : ""}${sample.review ? " review" : ""}`;
    const made = element("li", { class: kind });
    if (!isTable()) made.append(element("img", { src: sample.url, alt: sample.name }));
    made.append(words, distribution(sample));
    return made;
  }

  function distribution(sample) {
    const shares = model.classes.map((name) => sample.probabilities[name]);
    const low = sample.low === null ? -1 : model.classes.indexOf(sample.low);
    const high = sample.high === null ? -2 : model.classes.indexOf(sample.high);
    const within = (rank) => rank >= low && rank <= high;
    const drawing = { preserveAspectRatio: "none", "aria-hidden": "true" };
    if (shares.length <= FEW_CLASSES) {
      const list = element("dl", { class: "shares" });
      shares.forEach((share, rank) => {
        const bold = rank === sample.rank ? " predicted" : "";
        const bar = shape("svg", { viewBox: "0 0 100 1", ...drawing });
        if (within(rank)) bar.append(shape("rect", { class: "range", width: 100, height: 1 }));
        bar.append(shape("rect", { class: `bar${bold}`, width: Math.max(100 * share, 0.6), height: 1 }));
        list.append(element("dt", { class: bold, title: model.classes[rank] },
          short(model.classes[rank], 30)), bar, element("dd", { class: `number${bold}` }, percent(share, 1)));
      });
      return list;
    }
    const largest = Math.max(...shares);
    const figure = shape("svg", { class: "bars", viewBox: `0 0 ${shares.length} 1`, ...drawing });
    shares.forEach((share, rank) => {
      const height = Math.max(share / largest, 0.02);
      if (within(rank)) figure.append(shape("rect", { class: "range", x: rank, width: 1, height: 1 }));
      figure.append(shape("rect", { class: `bar${rank === sample.rank ? " predicted" : ""}`,
        x: rank + 0.1, y: 1 - height, width: 0.8, height },
      shape("title", {}, `${model.classes[rank]}: ${percent(share, 1)}`)));
    });
    return element("div", {}, figure, element("div", { class: "ends muted" },
      element("span", {}, short(model.classes[0], 24)),
      element("span", {}, short(model.classes[shares.length - 1], 24))));
  }

  // --- CSV, as layline predict writes it: no spreadsheet may take a text for a formula

  const FORMULA = /^'*(\.\/'*)?[=+\-@\t\r]/;
  const NUMBER = /^[+-](\d+[.,]?\d*|[.,]\d+)?(e[+-]?\d+)?$/i;
  function safe(text, isPath = false) {
    if (!FORMULA.test(text) || (!isPath && (text === "=" || NUMBER.test(text)))) return text;
    return isPath ? `./${text}` : `'${text}`;
  }
  const quote = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

  function csv() {
    const ends = model.coverage !== null ? ["low", "high"] : [];
    const review = model.review !== null ? ["review"] : [];
    const header = ["path", "predicted", ...ends, "confidence", ...review,
      ...model.classes.map((name) => `p_${name}`)];
    const rows = graded().map((each) => [
      safe(each.name, !isTable()), safe(each.predicted), ...ends.map((end) => safe(each[end])),
      String(each.confidence), ...review.map(() => String(each.review)),
      ...model.classes.map((name) => String(each.probabilities[name])),
    ]);
    return [header, ...rows].map((cells) => `${cells.map(quote).join(",")}\n`).join("");
  }

  byId("download").addEventListener("click", () => {
    const url = URL.createObjectURL(new Blob([csv()], { type: "text/csv" }));
    element("a", { href: url, download: `${model.name}-grades.csv` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  });

  // --- events

  for (const id of ["files", "photo"]) {
    byId(id).addEventListener("change", (event) => {
      add([...event.target.files]);
      event.target.value = "";
    });
  }
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
  });
  window.addEventListener("dragover", (event) => {
    event.preventDefault(); // anywhere on the page, or the browser would open the file
    byId("drop").classList.add("over");
  });
  window.addEventListener("dragleave", () => byId("drop").classList.remove("over"));
  window.addEventListener("drop", (event) => {
    event.preventDefault();
    byId("drop").classList.remove("over");
    add([...event.dataTransfer.files]);
  });
  window.addEventListener("paste", (event) => add([...(event.clipboardData?.files ?? [])]));

  fetch("model").then((response) => response.json()).then((answer) => {
    model = answer;
    describeModel();
  }).catch(() => {
    byId("title").textContent = "The server does not answer";
  });
})();
