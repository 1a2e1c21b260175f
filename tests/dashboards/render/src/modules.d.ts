// Modules without types of their own.

declare module '*.css';
declare module 'd3-scale-chromatic';
declare module 'react-dom' {
  export function flushSync(callback: () => void): void;
}
declare module 'react-dom/client' {
  import type { ReactNode } from 'react';

  export interface Root {
    render(node: ReactNode): void;
    unmount(): void;
  }

  export function createRoot(
    container: Element,
    options?: { onUncaughtError?: (error: unknown) => void }
  ): Root;
}
