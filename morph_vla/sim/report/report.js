document.addEventListener("click", function (event) {
  var cell = event.target.closest("[data-says]");
  if (!cell) return;
  document.getElementById(cell.dataset.line).textContent = cell.dataset.says;
  var clip = cell.hash ? document.querySelector(cell.hash + " video") : null;
  if (clip) { clip.currentTime = 0; clip.play().catch(function () {}); }
});

// A slider chooses a step of an episode: the maps of its section are drawn anew, a path a shade.
document.querySelectorAll(".slider").forEach(function (box) {
  var data = JSON.parse(box.querySelector("script").textContent);
  var maps = Array.from(box.parentElement.querySelectorAll("svg[data-joints]"));
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
