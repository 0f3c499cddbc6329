import { yamlOf } from '../object/yaml';
import { ComparisonView } from './comparison';

/** What becomes of one object, line by line. */
export default function FieldsOfChange({ before, after }: { before: unknown; after: unknown }) {
  return <ComparisonView left={yamlOf(before, false)} right={yamlOf(after, false)} mode="unified" />;
}
