"use strict";
// Light or dark: the setting of the system, until the reader chooses.
const theme = (() => {
  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const painters = [];
  // Perceptually even from dark to light; each theme leaves out the end close to its background.
  const VIRIDIS = ["#440154", "#482475", "#414487", "#355f8d", "#2a788e", "#21918c", "#22a884",
    "#44bf70", "#7ad151", "#bddf26", "#fde725"];
  const scale = (colors) => colors.map((color, i) => [i / (colors.length - 1), color]);

  const isDark = () => root.dataset.theme === "dark" ||
    (root.dataset.theme === "auto" && system.matches);
  const variable = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();

  function color(name) {
    const dark = isDark();
    if (name === "sequential") return scale(dark ? VIRIDIS.slice(3) : VIRIDIS.slice(0, 9));
    if (name === "heat") return scale(dark ? ["#191f26", "#1c3f66", "#2f6fb3", "#a9d0fa"]
      : ["#ffffff", "#d5e4f4", "#8fbbe6", "#123f75"]);
    if (name === "diverging") return scale(dark ? ["#f0a35e", "#191f26", "#7db4f0"]
      : ["#b35806", "#ffffff", "#1f5fa8"]);
    return variable(name);
  }

  function set(name) {
    root.dataset.theme = name;
    painters.forEach((paint) => paint());
  }

  document.getElementById("theme").addEventListener("click", () => set(isDark() ? "light" : "dark"));
  system.addEventListener("change", () => set(root.dataset.theme));
  let before = "auto";
  window.addEventListener("beforeprint", () => { before = root.dataset.theme; set("light"); });
  window.addEventListener("afterprint", () => set(before));
  return { color, isDark, onChange: (paint) => painters.push(paint) };
})();
