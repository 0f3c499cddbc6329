package live

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/command"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

type tree = apimodel.Tree

// Why returns the command that stands beside the nouns, too.
func Why(env *command.Env) *cobra.Command { return commands{env}.why() }

func (a commands) why() *cobra.Command {
	return a.One("why NAME", "Say why an application is not healthy or not synced, and what to do next",
		"  capstan why shop\n  capstan app why team-a/shop -o json",
		func(cmd *cobra.Command, api *client.Client, namespace, name string) error {
			w, raw, err := client.Call[apimodel.Why](api.ExplainApplication(cmd.Context(), namespace, name))
			if err != nil {
				return err
			}
			if a.Format != "" && a.Format != "table" {
				t := output.Table{Head: []string{"CLASS", "OBJECT", "MESSAGE"}}
				for _, c := range w.Causes {
					t.Rows, t.Names = append(t.Rows, []string{c.Class, objectName(c.Object), c.Message}), append(t.Names, c.Class)
				}
				return a.Print(raw, t)
			}
			_, err = fmt.Fprint(a.Out, describe(w, output.PaletteOf(a.Out)))
			return err
		})
}

func objectName(o apimodel.WhyObject) string {
	return strings.TrimSpace(o.Kind + " " + strings.TrimPrefix(o.Namespace+"/"+o.Name, "/"))
}

// describe writes causes for people.
func describe(w apimodel.Why, p output.Palette) string {
	var b strings.Builder
	if w.Healthy {
		return p.Good("Nothing is wrong that is known.") + "\n"
	}
	for i, c := range w.Causes {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%s (%s)\n", p.Bad(output.Plain(c.Title)), c.Class)
		if len(c.Path) > 0 {
			var steps []string
			for _, o := range c.Path {
				steps = append(steps, objectName(o))
			}
			where := output.Plain(strings.Join(steps, " > "))
			if c.Container != "" {
				where += ", container " + output.Plain(c.Container)
			}
			fmt.Fprintf(&b, "  where:   %s\n", where)
		}
		fmt.Fprintf(&b, "  says:    %s\n", output.Plain(strings.Join(strings.Fields(c.Message), " ")))
		if !c.FirstSeen.IsZero() {
			fmt.Fprintf(&b, "  since:   %s\n", output.Ago(c.FirstSeen))
		}
		for _, line := range c.LastLines {
			fmt.Fprintf(&b, "  | %s\n", output.Plain(line))
		}
		fmt.Fprintf(&b, "  do:      %s\n", output.Plain(c.Advice))
		if c.Command != "" {
			fmt.Fprintf(&b, "  more:    %s\n", output.Plain(c.Command))
		}
	}
	if !w.ClusterAsked {
		b.WriteString("\nThe cluster could not be asked; this is from what was last reported.\n")
	}
	return b.String()
}
