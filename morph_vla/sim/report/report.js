document.addEventListener("click", function (event) {
  var cell = event.target.closest("[data-says]");
  if (!cell) return;
  document.getElementById(cell.dataset.line).textContent = cell.dataset.says;
  var clip = cell.hash ? document.querySelector(cell.hash + " video") : null;
  if (clip) { clip.currentTime = 0; clip.play(); }
});
