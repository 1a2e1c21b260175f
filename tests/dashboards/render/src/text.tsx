// Text: Markdown or HTML.

import { renderMarkdown, renderTextPanelMarkdown, textUtil } from '@grafana/data';

import { DrawingError } from './document';
import { NOTHING, type Content, type PanelType, type Sized } from './paneltype';

function html({ options, replaceVariables }: Content): string {
  const content = replaceVariables(options.content ?? '');
  switch (options.mode) {
    case 'markdown':
      return renderTextPanelMarkdown(content);
    case 'html':
      return textUtil.sanitize(content);
    case 'code':
      return renderMarkdown(`\`\`\`\n${content}\n\`\`\``);
    default:
      throw new DrawingError(`unknown mode of a text: ${options.mode}`);
  }
}

function Body(props: Sized) {
  return (
    <div
      className="markdown-html panel-text"
      style={{ height: props.height, overflow: 'auto' }}
      dangerouslySetInnerHTML={{ __html: html(props) }}
    />
  );
}

export const text: PanelType = {
  field: {},
  options: { mode: 'markdown', content: '' },
  shown: (content) => ({ ...NOTHING, rows: html(content).trim() ? 1 : 0 }),
  Body,
};
