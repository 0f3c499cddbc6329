import { Autocomplete, Button, Group, Stack, Table, Text, TextInput } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { sentence } from '../../api/errors';
import { number, t } from '../../texts';
import { StateMark } from '../../ui/badges';
import { SectionTitle } from '../../ui/page';
import { Nothing, Screen } from '../../ui/states';
import { accessQueries, type Question, type RightDecision, type WhoCan } from './api';
import { actions, readQuestion } from './model';

const samples = ['delete applications prod/*', 'sync applications default/*', 'update settings *', 'create clusters *'];

/** Who may do something, or whether somebody may, and by which rule. */
export function Ask({
  question,
  who,
  set,
}: {
  question: string;
  who: string;
  set: (change: { q: string | undefined; who: string | undefined }) => void;
}) {
  const [text, setText] = useState(question);
  const [subject, setSubject] = useState(who);
  const asked = readQuestion(question);
  const ask = (e: FormEvent) => {
    e.preventDefault();
    set({ q: text, who: subject });
  };
  return (
    <Stack>
      <form onSubmit={ask}>
        <Group align="flex-end" gap="lg">
          <Autocomplete
            label={t('What')}
            description={t('An action, a resource and an object, which may have wildcards')}
            placeholder={samples[0] ?? ''}
            data={samples}
            miw={320}
            value={text}
            onChange={setText}
          />
          <TextInput
            label={t('By whom')}
            description={t('A user and groups; empty: everybody who can')}
            value={subject}
            onChange={(e) => setSubject(e.currentTarget.value)}
          />
          <Button type="submit" disabled={!readQuestion(text)}>
            {t('Ask')}
          </Button>
        </Group>
      </form>
      {!question && (
        <Text c="dimmed">
          {t('Resources are {{names}}. Applications are named project/name, such as prod/checkout.', {
            names: Object.keys(actions).join(', '),
          })}
        </Text>
      )}
      {question && !asked && <Nothing title={t('Write an action, a resource and an object.')} />}
      {asked && (who ? <Can who={who} question={asked} /> : <Who question={asked} />)}
    </Stack>
  );
}

function Can({ who, question }: { who: string; question: Question }) {
  const answer = useQuery(accessQueries.can(who, question));
  return <Screen query={answer}>{(d) => <Decision who={who} decision={d} />}</Screen>;
}

function Decision({ who, decision: d }: { who: string; decision: RightDecision }) {
  const asked = { who, action: d.action, resource: d.resource, object: d.object };
  return (
    <section aria-label={t('Answer')}>
      <StateMark
        look={
          d.allowed
            ? { label: t('Yes'), tone: 'ok', shape: 'done' }
            : { label: t('No'), tone: 'failed', shape: 'barred' }
        }
      />
      <Text mt="xs">
        {d.allowed
          ? t('{{who}} may {{action}} {{resource}} {{object}}.', asked)
          : t('{{who}} may not {{action}} {{resource}} {{object}}.', asked)}
      </Text>
      <Text c="dimmed">{d.problem ? sentence(d.problem) : reason(d)}</Text>
    </section>
  );
}

/** Which rule decided, and where it is written. */
function reason(d: { rule?: string; source?: string; line?: number; layer?: string }): string {
  if (!d.rule) return t('No rule speaks of it, and what no rule allows is refused.');
  return `${d.rule} · ${place(d)}`;
}

function place({ source = '', line }: { source?: string; line?: number }): string {
  return line ? t('{{source}}, line {{line}}', { source, line }) : source;
}

function Who({ question }: { question: Question }) {
  const answer = useQuery(accessQueries.whoCan(question));
  return (
    <Screen query={answer}>
      {(d) => (
        <section aria-label={t('Answer')}>
          <SectionTitle
            count={d.items.length}
            right={
              <Button size="compact-sm" variant="default" onClick={() => download(question, d)}>
                {t('Export')}
              </Button>
            }
          >
            {t('Who can {{action}} {{resource}} {{object}}', { ...question })}
          </SectionTitle>
          {d.objects === 0 && (
            <Text c="dimmed">{t('There is no such object now; the rules were asked about the pattern itself.')}</Text>
          )}
          {d.items.length === 0 ? (
            <Nothing title={t('Nobody can.')} />
          ) : (
            <Table aria-label={t('Who can')}>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>{t('Who')}</Table.Th>
                  <Table.Th>{t('On')}</Table.Th>
                  <Table.Th>{t('By the rule')}</Table.Th>
                  <Table.Th className="second">{t('Written in')}</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {d.items.map((i) => (
                  <Table.Tr key={i.subject}>
                    <Table.Td className="breakable">
                      {i.subject || t('Everybody who is signed in')}
                      <Text size="xs" c="dimmed">
                        {i.kind}
                      </Text>
                    </Table.Td>
                    <Table.Td className="breakable">
                      {i.count === d.objects && d.objects > 1
                        ? t('all {{n}}', { n: number(d.objects) })
                        : i.examples.slice(0, 3).join(', ')}
                      {i.count !== d.objects && i.count > 3 && ` ${t('and {{n}} more', { n: number(i.count - 3) })}`}
                    </Table.Td>
                    <Table.Td className="breakable">
                      <code>{i.rule}</code>
                    </Table.Td>
                    <Table.Td className="second">{place(i)}</Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          )}
          {d.more && <Text c="dimmed">{t('There are more objects than were looked at.')}</Text>}
        </section>
      )}
    </Screen>
  );
}

/** Saves the answer with its question as a file. */
function download(question: Question, answer: WhoCan) {
  const text = JSON.stringify({ question, at: new Date().toISOString(), ...answer }, null, 2);
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
  link.download = `who-can-${question.action.replaceAll('/', '-')}-${question.resource}.json`;
  link.click();
  URL.revokeObjectURL(link.href);
}
