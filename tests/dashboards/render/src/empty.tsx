// What Grafana shows in the place of a panel without data.

import { noValue, type Sized } from './paneltype';

export function Empty(props: Sized) {
  return (
    <div className="panel-empty" style={{ width: props.width, height: props.height }}>
      {noValue(props)}
    </div>
  );
}
