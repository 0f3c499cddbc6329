import { autocompletion, type CompletionSource, completionKeymap } from '@codemirror/autocomplete';
import { defaultKeymap, history, historyKeymap } from '@codemirror/commands';
import { yaml } from '@codemirror/lang-yaml';
import { HighlightStyle, syntaxHighlighting } from '@codemirror/language';
import { EditorState, StateEffect, StateField } from '@codemirror/state';
import { Decoration, EditorView, keymap, lineNumbers } from '@codemirror/view';
import { tags } from '@lezer/highlight';
import { useEffect, useRef } from 'react';
import './code-styles';
import './code-editor.css';

const colours = HighlightStyle.define([
  { tag: tags.comment, class: 'code-comment' },
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], class: 'code-name' },
  { tag: [tags.string, tags.number, tags.bool], class: 'code-value' },
]);

const setMarks = StateEffect.define<readonly number[]>();
const marked = StateField.define({
  create: () => Decoration.none,
  update: (held, tr) => {
    let out = held.map(tr.changes);
    for (const e of tr.effects) {
      if (!e.is(setMarks)) continue;
      const lines = [...new Set(e.value)].filter((n) => n >= 1 && n <= tr.state.doc.lines).sort((a, b) => a - b);
      out = Decoration.set(
        lines.map((n) => Decoration.line({ class: 'code-marked' }).range(tr.state.doc.line(n).from)),
      );
    }
    return out;
  },
  provide: (f) => EditorView.decorations.from(f),
});

/**
 * A text with line numbers and completions. Its colours are classes, because
 * the content security policy refuses styles of its own. Tab leaves it.
 */
export function CodeEditor(props: {
  value: string;
  label: string;
  change?: (value: string) => void;
  complete?: CompletionSource;
  language?: 'yaml' | 'plain';
  /** Lines that are marked as changed or wrong, from 1. */
  marks?: readonly number[];
}) {
  const { value, label, change, complete, language = 'plain', marks } = props;
  const holder = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView>(null);
  const latest = useRef({ change, complete, value });
  latest.current = { change, complete, value };
  useEffect(() => {
    if (!holder.current) return;
    const made = new EditorView({
      parent: holder.current,
      state: EditorState.create({
        doc: value,
        extensions: [
          lineNumbers(),
          history(),
          marked,
          keymap.of([...completionKeymap, ...defaultKeymap, ...historyKeymap]),
          ...(language === 'yaml' ? [yaml(), syntaxHighlighting(colours)] : []),
          ...(complete
            ? [autocompletion({ override: [(c) => latest.current.complete?.(c) ?? null], icons: false })]
            : []),
          // What scrolls can be focused, also where its text cannot be edited.
          EditorView.contentAttributes.of({ 'aria-label': label, tabindex: '0' }),
          EditorView.lineWrapping,
          EditorState.readOnly.of(!change),
          EditorView.updateListener.of((u) => {
            const next = u.docChanged ? u.state.doc.toString() : latest.current.value;
            // What comes from outside is no change of the person.
            if (next !== latest.current.value) latest.current.change?.(next);
          }),
        ],
      }),
    });
    view.current = made;
    return () => made.destroy();
    // The editor lives as long as what it is of; its text is set below.
  }, [label, language, !change]);
  useEffect(() => {
    const v = view.current;
    if (v && v.state.doc.toString() !== value) {
      v.dispatch({ changes: { from: 0, to: v.state.doc.length, insert: value } });
    }
  }, [value]);
  useEffect(() => {
    view.current?.dispatch({ effects: setMarks.of(marks ?? []) });
  }, [marks, value]);
  return <div className="codebox" ref={holder} />;
}
