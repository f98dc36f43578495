// Components that are drawn anew only if one of their properties is another object.

import { Component, h, type ComponentType, type FunctionComponent } from "preact";

export function memo<P extends object>(component: FunctionComponent<P>): ComponentType<P> {
  return class Memo extends Component<P> {
    override shouldComponentUpdate(next: P): boolean {
      const before = this.props as Record<string, unknown>;
      const after = next as Record<string, unknown>;
      return Object.keys(after).some((name) => after[name] !== before[name]);
    }

    override render() {
      return h(component as ComponentType<object>, this.props);
    }
  };
}
