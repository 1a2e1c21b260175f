// Reloads the page, but not while text is selected, which would be lost.
const { seconds } = document.documentElement.dataset;
function reload() {
  if (getSelection().isCollapsed) {
    location.reload();
  } else {
    setTimeout(reload, 500);
  }
}
setTimeout(reload, 1000 * seconds);
