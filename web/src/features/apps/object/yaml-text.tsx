import { yaml } from '@codemirror/lang-yaml';
import { foldGutter, HighlightStyle, syntaxHighlighting } from '@codemirror/language';
import { EditorState } from '@codemirror/state';
import { EditorView, lineNumbers } from '@codemirror/view';
import { tags } from '@lezer/highlight';
import { useComputedColorScheme } from '@mantine/core';
import { useEffect, useRef } from 'react';
import { t } from '../../../texts';

const colours = {
  '&': { fontSize: '12px', backgroundColor: 'var(--raised)', color: 'var(--text)' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '20px' },
  '.cm-gutters': { backgroundColor: 'var(--raised)', color: 'var(--text-3)', border: '0' },
};
const onLight = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: '#0a6161' },
  { tag: [tags.string, tags.content], color: '#14181f' },
  { tag: [tags.number, tags.bool, tags.null], color: '#5b3bbb' },
]);
const onDark = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: '#5cc7c0' },
  { tag: [tags.string, tags.content], color: '#e9ecf1' },
  { tag: [tags.number, tags.bool, tags.null], color: '#bda9ff' },
]);

/** What the editor says of its own. */
const phrases = {
  'Control character': t('Control character'),
  'Fold line': t('Fold line'),
  'Unfold line': t('Unfold line'),
  'folded code': t('folded code'),
  unfold: t('unfold'),
};

/** YAML that is only read: with colours, numbers of lines, and parts that can be folded. */
export function YamlText({ text, name }: { text: string; name: string }) {
  const host = useRef<HTMLDivElement>(null);
  const dark = useComputedColorScheme('light') === 'dark';
  useEffect(() => {
    if (!host.current) return;
    // In a shadow root the editor uses constructed style sheets, which the
    // content security policy allows; in the page it would add style elements.
    const root = host.current.shadowRoot ?? host.current.attachShadow({ mode: 'open' });
    const view = new EditorView({
      doc: text,
      root,
      parent: root,
      extensions: [
        lineNumbers(),
        foldGutter(),
        yaml(),
        EditorView.lineWrapping,
        EditorView.contentAttributes.of({ 'aria-label': name, tabindex: '0' }),
        EditorView.editable.of(false),
        EditorView.theme(colours, { dark }),
        syntaxHighlighting(dark ? onDark : onLight),
        EditorState.readOnly.of(true),
        EditorState.phrases.of(phrases),
      ],
    });
    return () => view.destroy();
  }, [text, name, dark]);
  return <div ref={host} className="yaml-text" data-testid="yaml" />;
}
