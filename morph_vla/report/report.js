// A chosen episode says how it ended, stands out on its task's map, and plays its video.
document.addEventListener("click", function (event) {
  var cell = event.target.closest("[data-says]");
  if (!cell) return;
  document.getElementById(cell.dataset.line).textContent = cell.dataset.says;
  var trip = document.querySelector('.trip[data-trip="' + cell.dataset.trip + '"]');
  if (trip) {
    trip.parentElement.querySelectorAll(".chosen").forEach(function (other) { other.classList.remove("chosen"); });
    trip.classList.add("chosen");
    trip.parentElement.appendChild(trip);
  }
  var clip = cell.hash ? document.querySelector(cell.hash + " video") : null;
  if (clip) { clip.currentTime = 0; clip.play().catch(function () {}); }
});

// The episodes of a task are one stop of the Tab key; arrow keys go from one to the next.
document.querySelectorAll(".cells").forEach(function (box) {
  var cells = Array.from(box.children);
  cells.forEach(function (cell, place) { cell.tabIndex = place ? -1 : 0; });
  box.addEventListener("keydown", function (event) {
    var columns = getComputedStyle(box).gridTemplateColumns.split(" ").length, at = cells.indexOf(event.target);
    var step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
    var next = step && cells[at + step];
    if (!next) return;
    event.preventDefault();
    cells[at].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
});

// A video plays bare; its controls come with the pointer, the keyboard or a touch.
document.querySelectorAll(".clip video[controls]").forEach(function (video) {
  video.controls = false;
  ["pointerenter", "focus", "touchstart"].forEach(function (kind) {
    video.addEventListener(kind, function () { video.controls = true; }, { passive: true });
  });
  ["pointerleave", "blur"].forEach(function (kind) {
    video.addEventListener(kind, function () { video.controls = false; });
  });
  video.tabIndex = 0;
  if (video.autoplay && matchMedia("(prefers-reduced-motion: reduce)").matches) { video.autoplay = false; video.pause(); }
});

// A video that stands elsewhere on the page is shown here too: the file holds it once.
document.querySelectorAll("video[data-of]").forEach(function (video) {
  var other = document.querySelector("#" + video.dataset.of + " video");
  if (!other) return;
  video.preload = "auto";
  video.src = other.src;
  video.currentTime = 0.01;  // shows the first frame, where the slider stands
  video.closest("figure").classList.add("ready");
});

// A table that is wider than its box says so.
function mark() {
  document.querySelectorAll(".scroll").forEach(function (box) {
    box.toggleAttribute("data-over", box.scrollWidth > box.clientWidth + 1);
  });
}
mark();
addEventListener("resize", mark);
document.querySelectorAll("details").forEach(function (fold) { fold.addEventListener("toggle", mark); });

// A slider chooses a step of an episode: the maps of its section are drawn anew, a path a shade.
document.querySelectorAll(".slider").forEach(function (box) {
  var data = JSON.parse(box.querySelector("script").textContent);
  var maps = Array.from(box.parentElement.querySelectorAll("svg[data-joints]"));
  var video = box.parentElement.querySelector("video[data-of]");
  function path(letters, joints, shade) {
    var side = 132 / joints, found = "", letter = String.fromCharCode(97 + shade);
    for (var i = letters.indexOf(letter); i >= 0; i = letters.indexOf(letter, i + 1)) {
      var x = (16 + side * (i % joints)).toFixed(2), y = (38 + side * Math.floor(i / joints)).toFixed(2);
      found += "M" + x + " " + y + "h" + side + "v" + side + "h-" + side + "z";
    }
    return found;
  }
  box.querySelector("input").addEventListener("input", function (event) {
    var step = Number(event.target.value);
    box.querySelector("output").textContent = data.words[step];
    var seconds = /([0-9.]+) s$/.exec(data.words[step]);
    if (video && video.src && seconds) video.currentTime = Number(seconds[1]);
    maps.forEach(function (map, layer) {
      var shades = map.querySelector(".shades");
      shades.textContent = "";
      for (var shade = 1; shade <= 16; shade++) {
        var d = path(data.shades[step][layer], Number(map.dataset.joints), shade);
        if (!d) continue;
        var cells = document.createElementNS(map.namespaceURI, "path");
        cells.setAttribute("d", d);
        cells.setAttribute("class", "heat");
        cells.setAttribute("fill-opacity", shade / 16);
        shades.appendChild(cells);
      }
    });
  });
});
