// Grafana fetches its icons from its server; here they are in the bundle. Stands in for `react-inlinesvg`.

import { useEffect, type CSSProperties, type Ref } from 'react';

interface Props {
  src: string;
  width?: number;
  height?: number;
  className?: string;
  style?: CSSProperties;
  title?: string;
  onLoad?: () => void;
  innerRef?: Ref<HTMLSpanElement>;
}

declare const require: (path: string) => string | { default: string };

function source(path: string): string {
  const [folder, name] = path
    .replace(/\.svg$/, '')
    .split('/')
    .slice(-2);
  const file =
    folder === 'unicons'
      ? require(`../node_modules/@grafana/ui/dist/public/img/icons/unicons/${name}.svg`)
      : folder === 'custom'
        ? require(`../node_modules/@grafana/ui/dist/public/img/icons/custom/${name}.svg`)
        : require(`../node_modules/@grafana/ui/dist/public/img/icons/mono/${name}.svg`);
  return typeof file === 'string' ? file : file.default;
}

export default function Icon({ src, width, height, className, style, title, onLoad, innerRef }: Props) {
  useEffect(() => onLoad?.(), [src]);
  const svg = source(src).replace('<svg', `<svg width="${width}" height="${height}"`);
  return (
    <span
      ref={innerRef}
      className={className}
      style={{ ...style, width, height }}
      title={title || undefined}
      dangerouslySetInnerHTML={{ __html: svg }}
    />
  );
}
