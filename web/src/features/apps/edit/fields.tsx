import { Autocomplete, Switch, Textarea, TextInput } from '@mantine/core';
import { type ReactNode, useEffect, useState } from 'react';
import { t } from '../../../texts';
import { text } from '../object/read';
import { type Path, valueAt } from './document';

/** An application that is written: what it says, how a field is changed, and what is wrong with one. */
export interface Form {
  value: unknown;
  set: (path: Path, value: unknown) => void;
  /** Changes the whole text, where one field is not enough. */
  edit: (change: (text: string) => string) => void;
  problem: (path: Path) => string | undefined;
}

interface FieldProps {
  form: Form;
  path: Path;
  label: string;
  description?: string;
  placeholder?: string;
  required?: boolean;
}

export const textAt = (form: Form, path: Path) => text(valueAt(form.value, path));

/** One text of the application; emptied, the field goes, unless it is required. */
export function TextField({ form, path, required, ...rest }: FieldProps) {
  return (
    <TextInput
      {...rest}
      autoComplete="off"
      spellCheck={false}
      required={required ?? false}
      value={textAt(form, path)}
      error={form.problem(path)}
      onChange={(e) => form.set(path, e.currentTarget.value || (required ? '' : undefined))}
    />
  );
}

/** One text for which the hub has found values; others can be typed. */
export function FoundField(
  props: FieldProps & { found: readonly string[]; readOnly?: boolean; take?: (value: string) => void },
) {
  const { form, path, found, required, take, readOnly, ...rest } = props;
  const change = take ?? ((v: string) => form.set(path, v || (required ? '' : undefined)));
  return (
    <Autocomplete
      {...rest}
      autoComplete="off"
      spellCheck={false}
      required={required ?? false}
      readOnly={readOnly ?? false}
      limit={100}
      maxDropdownHeight={280}
      data={[...new Set(found)]}
      value={textAt(form, path)}
      error={form.problem(path)}
      onChange={change}
    />
  );
}

/** A truth of the application; off, it is absent. */
export function SwitchField({ form, path, label, description }: FieldProps) {
  return (
    <Switch
      label={label}
      description={description}
      checked={textAt(form, path) === 'true'}
      onChange={(e) => form.set(path, e.currentTarget.checked ? true : undefined)}
    />
  );
}

/** A list or a map that is written line by line. What cannot be read stays in the field, and is not taken over. */
export function LinesField<T>(
  props: Omit<FieldProps, 'required'> & {
    /** The lines of what stands there. */
    show: (value: unknown) => string[];
    /** What lines stand for, or why they cannot be read. */
    parse: (lines: string[]) => { value?: T | undefined; error: string };
    rows?: number;
    save?: (value: T | undefined) => void;
  },
) {
  const { form, path, show, parse, rows = 3, save, ...rest } = props;
  const held = show(valueAt(form.value, path)).join('\n');
  const [written, setWritten] = useState(held);
  const lines = written
    .split('\n')
    .map((l) => l.trim())
    .filter(Boolean);
  const read = parse(lines);
  useEffect(() => {
    // The YAML beside it, or somebody else, has changed it.
    if (lines.join('\n') !== held && !read.error) setWritten(held);
  }, [held]);
  return (
    <Textarea
      {...rest}
      autosize
      minRows={rows}
      maxRows={14}
      spellCheck={false}
      classNames={{ input: 'mono' }}
      value={written}
      error={read.error || form.problem(path)}
      onChange={(e) => {
        const next = e.currentTarget.value;
        setWritten(next);
        const now = parse(
          next
            .split('\n')
            .map((l) => l.trim())
            .filter(Boolean),
        );
        if (!now.error) (save ?? ((v: T | undefined) => form.set(path, v)))(now.value);
      }}
    />
  );
}

/** A map as lines of key=value. */
export const mapLines = {
  show: (value: unknown) =>
    typeof value === 'object' && value !== null ? Object.entries(value).map(([k, v]) => `${k}=${text(v)}`) : [],
  parse: (lines: string[]): { value?: Record<string, string> | undefined; error: string } => {
    const out: Record<string, string> = {};
    for (const line of lines) {
      const cut = line.indexOf('=');
      if (cut < 1) return { error: t('Write “{{line}}” as key=value.', { line }) };
      out[line.slice(0, cut).trim()] = line.slice(cut + 1).trim();
    }
    return { value: lines.length > 0 ? out : undefined, error: '' };
  },
};

/** A list of names and values, such as info, as lines of name=value. */
export const pairLines = {
  show: (value: unknown) =>
    Array.isArray(value) ? value.map((v: unknown) => `${text(v, 'name')}=${text(v, 'value')}`) : [],
  parse: (lines: string[]): { value?: { name: string; value: string }[] | undefined; error: string } => {
    const read = mapLines.parse(lines);
    if (read.error || !read.value) return { error: read.error };
    return { value: Object.entries(read.value).map(([name, value]) => ({ name, value })), error: '' };
  },
};

/** A list of texts, one on each line. */
export const textLines = {
  show: (value: unknown) => (Array.isArray(value) ? value.map((v: unknown) => text(v)) : []),
  parse: (lines: string[]): { value?: string[] | undefined; error: string } => ({
    value: lines.length > 0 ? lines : undefined,
    error: '',
  }),
};

/** A part of the form with its title. */
export function Part({ title, about, children }: { title: string; about?: ReactNode; children: ReactNode }) {
  return (
    <section className="edit-part" aria-label={title}>
      <h3>
        {title} {about && <span className="quiet">{about}</span>}
      </h3>
      {children}
    </section>
  );
}
