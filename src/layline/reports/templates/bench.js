"use strict";
// Show the chosen table.
const metric = document.getElementById("metric");
const decode = document.getElementById("decode");

function chooseTable() {
  const names = [`${metric.value}-${decode.value}`, metric.value]; // some metrics need no decoding
  const tables = [...document.querySelectorAll("#tables [data-table]")];
  const chosen = tables.find((each) => names.includes(each.dataset.table));
  tables.forEach((each) => { each.hidden = each !== chosen; });
  decode.disabled = chosen.dataset.table === metric.value;
}

metric.addEventListener("change", chooseTable);
decode.addEventListener("change", chooseTable);
