(() => {
  const page = document.documentElement;
  // A table that scrolls by itself may be wider, all else may not.
  const wide = [...document.body.querySelectorAll('*')].filter(
    (e) => !e.closest('.scroll table') && !e.closest('.hidden')
      && e.getBoundingClientRect().right > page.clientWidth + 0.5);
  return [page.scrollWidth - page.clientWidth, wide.map((e) => e.outerHTML.slice(0, 120))];
})()
