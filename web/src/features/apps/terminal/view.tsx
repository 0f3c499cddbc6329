import { Button, Group, Select, Text, useComputedColorScheme } from '@mantine/core';
import { IconClipboard, IconCopy, IconPlayerStop, IconTerminal2 } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { useEffect, useRef, useState } from 'react';
import type { Node } from '../../../api/client';
import { sentence } from '../../../api/errors';
import { StateMark } from '../../../ui/badges';
import { Nothing, Screen } from '../../../ui/states';
import { type AppKey, appQueries } from '../api';
import { list, text } from '../object/read';
import '@xterm/xterm/css/xterm.css';
import { count, t } from '../../../texts';
import { copy, TerminalScreen } from './screen';
import { type Ended, Session, type Started } from './session';
import './terminal.css';

const shells = [{ value: '', label: t('First that is there') }, 'bash', 'sh', 'powershell', 'cmd'];

type State = { is: 'idle' } | { is: 'opening' } | { is: 'open'; started: Started } | { is: 'ended'; ended: Ended };

/** The containers of a pod that one can open a shell in. */
export function containersOf(live: unknown): string[] {
  return ['spec.containers', 'spec.ephemeralContainers', 'spec.initContainers'].flatMap((path) =>
    list(live, path).map((c) => text(c, 'name')),
  );
}

/** A shell in a container of a pod. */
export default function TerminalTab({ appKey, node }: { appKey: AppKey; node: Node }) {
  const live = useQuery(appQueries.live(appKey, node));
  return (
    <Screen
      query={live}
      empty={(o) => (containersOf(o).length === 0 ? <Nothing title={t('The pod has no containers.')} /> : undefined)}
    >
      {(o) => <View key={node.uid} appKey={appKey} node={node} containers={containersOf(o)} />}
    </Screen>
  );
}

/** How long something may last, in words. */
export function length(seconds: number): string {
  if (seconds >= 3600) return count(Math.round(seconds / 3600), '{{n}} hour', '{{n}} hours');
  if (seconds >= 60) return count(Math.round(seconds / 60), '{{n}} minute', '{{n}} minutes');
  return count(Math.round(seconds), '{{n}} second', '{{n}} seconds');
}

interface Props {
  appKey: AppKey;
  node: Node;
  containers: string[];
}

function View({ appKey, node, containers }: Props) {
  const [container, setContainer] = useState(containers[0] ?? '');
  const [shell, setShell] = useState('');
  const { ground, state, open, end, screen, choices } = useTerminal();
  const begin = () => open({ app: appKey, namespace: node.namespace ?? '', pod: node.name, container, shell: shell });
  const busy = state.is === 'opening' || state.is === 'open';
  return (
    <section className="terminal-view" aria-label={t('Terminal')}>
      <Group gap="xs" className="object-tools" ref={choices} tabIndex={-1}>
        <Select
          size="xs"
          aria-label={t('Container')}
          data={containers}
          value={container}
          allowDeselect={false}
          disabled={busy}
          onChange={(v) => setContainer(v ?? '')}
        />
        <Select
          size="xs"
          aria-label={t('Shell')}
          data={shells}
          value={shell}
          allowDeselect={false}
          disabled={busy}
          onChange={(v) => setShell(v ?? '')}
        />
        {busy ? (
          <Button size="xs" variant="default" leftSection={<IconPlayerStop size={14} aria-hidden />} onClick={end}>
            {t('End the session')}
          </Button>
        ) : (
          <Button size="xs" leftSection={<IconTerminal2 size={14} aria-hidden />} onClick={begin}>
            {state.is === 'ended' ? t('Open a new session') : t('Open a shell')}
          </Button>
        )}
        {state.is !== 'idle' && <Clipboard screen={screen} typing={state.is === 'open'} />}
      </Group>
      <StateLine state={state} />
      <div className="terminal-ground" ref={ground} data-on={state.is !== 'idle'} />
      {state.is === 'open' && <Keys press={(keys) => screen()?.terminal.input(keys)} />}
    </section>
  );
}

/** A screen, and the session that it shows. */
function useTerminal() {
  const ground = useRef<HTMLDivElement>(null);
  const choices = useRef<HTMLDivElement>(null);
  const held = useRef<{ screen?: TerminalScreen | undefined; session?: Session | undefined }>({});
  const [state, setState] = useState<State>({ is: 'idle' });
  const scheme = useComputedColorScheme('light');
  // The variables have the new colours once the attribute of the document has changed.
  useEffect(() => held.current.screen?.recolour(), [scheme]);
  useEffect(() => {
    const h = held.current;
    return () => {
      h.session?.close();
      h.screen?.remove();
      h.session = undefined;
      h.screen = undefined;
    };
  }, []);
  const finish = (ended: Ended) => {
    held.current.session = undefined;
    if (held.current.screen) held.current.screen.typing = false;
    setState({ is: 'ended', ended });
  };
  const open = (place: ConstructorParameters<typeof Session>[0]) => {
    if (!ground.current || held.current.session) return;
    const h = held.current;
    if (h.screen) h.screen.say(t('a new session'));
    h.screen ??= new TerminalScreen(ground.current, {
      type: (typed) => h.session?.type(typed),
      bytes: (typed) => h.session?.bytes(typed),
      resize: (size) => h.session?.resize(size),
      leave: () => choices.current?.focus(),
    });
    const screen = h.screen;
    setState({ is: 'opening' });
    h.session = new Session(place, screen.size, {
      started: (started) => {
        setState({ is: 'open', started });
        screen.typing = true;
        // The screen may have another size than it had when the session was asked for.
        h.session?.resize(screen.size);
        screen.terminal.focus();
      },
      output: (bytes) => screen.write(bytes),
      ended: finish,
    });
  };
  const end = () => {
    held.current.session?.close();
    finish({ reason: t('you have ended the session'), fix: '' });
  };
  return { ground, choices, state, open, end, screen: () => held.current.screen };
}

/** What runs where, and what ends it. */
function whatRuns(started: Started): string {
  const { container } = started;
  const command = started.command.join(' ');
  const most = started.maxSeconds ? length(started.maxSeconds) : '';
  const idle = started.idleSeconds ? length(started.idleSeconds) : '';
  if (most && idle)
    return t('{{command}} in {{container}}, ends after {{most}}, or {{idle}} without typing.', {
      command,
      container,
      most,
      idle,
    });
  if (most) return t('{{command}} in {{container}}, ends after {{most}}.', { command, container, most });
  if (idle) return t('{{command}} in {{container}}, or {{idle}} without typing.', { command, container, idle });
  return t('{{command}} in {{container}}.', { command, container });
}

/** How the session is, and what limits it. */
function StateLine({ state }: { state: State }) {
  return (
    <div className="terminal-state" role="status" aria-label={t('Session')}>
      {state.is === 'idle' && (
        <Text size="sm" c="dimmed">
          {t(
            'A shell runs with the rights of the container. Its start and end are in the audit log; what you type is not.',
          )}
        </Text>
      )}
      {state.is === 'opening' && <StateMark look={{ label: t('Opening …'), tone: 'working', shape: 'running' }} />}
      {state.is === 'open' && (
        <>
          <StateMark look={{ label: t('Open'), tone: 'ok', shape: 'running' }} />
          <Text size="sm" c="dimmed">
            {whatRuns(state.started)} {t('Shift-Escape leaves the screen.')}
          </Text>
        </>
      )}
      {state.is === 'ended' && <End ended={state.ended} />}
    </div>
  );
}

function End({ ended }: { ended: Ended }) {
  const { code } = ended;
  const well = code === 0;
  return (
    <>
      <StateMark look={{ label: t('Ended'), tone: well ? 'unknown' : 'attention', shape: well ? 'done' : 'failed' }} />
      <span className="breakable">
        {code === undefined ? sentence(ended.reason) : t('The shell has ended with code {{code}}.', { code })}
        {ended.fix && ` ${sentence(ended.fix)}`}
      </span>
    </>
  );
}

const copyKeys = 'Ctrl-Shift-C';
const pasteKeys = 'Ctrl-Shift-V';

function Clipboard({ screen, typing }: { screen: () => TerminalScreen | undefined; typing: boolean }) {
  return (
    <Group gap={4} ml="auto">
      <Button
        size="xs"
        variant="default"
        leftSection={<IconCopy size={14} aria-hidden />}
        title={copyKeys}
        onClick={() => void copy(screen()?.terminal.getSelection() ?? '')}
      >
        {t('Copy')}
      </Button>
      <Button
        size="xs"
        variant="default"
        leftSection={<IconClipboard size={14} aria-hidden />}
        title={pasteKeys}
        disabled={!typing}
        onClick={async () => {
          const pasted = await navigator.clipboard?.readText().catch(() => '');
          if (pasted) screen()?.terminal.paste(pasted);
          screen()?.terminal.focus();
        }}
      >
        {t('Paste')}
      </Button>
    </Group>
  );
}

const keys = [
  { key: 'Esc', sends: '\x1b' },
  { key: 'Tab', sends: '\t' },
  { key: 'Ctrl-C', sends: '\x03' },
  { key: 'Ctrl-D', sends: '\x04' },
  { key: '↑', name: t('Up'), sends: '\x1b[A' },
  { key: '↓', name: t('Down'), sends: '\x1b[B' },
  { key: '←', name: t('Left'), sends: '\x1b[D' },
  { key: '→', name: t('Right'), sends: '\x1b[C' },
] as const;

/** Keys that a phone does not have. */
function Keys({ press }: { press: (keys: string) => void }) {
  return (
    <fieldset className="terminal-keys" aria-label={t('Keys')}>
      {keys.map((k) => (
        <button
          type="button"
          key={k.key}
          aria-label={'name' in k ? k.name : k.key}
          onPointerDown={(e) => e.preventDefault()}
          onClick={() => press(k.sends)}
        >
          {k.key}
        </button>
      ))}
    </fieldset>
  );
}
