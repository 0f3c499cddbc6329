package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli"
)

const root = "../../.."

func TestReferenceIsCurrent(t *testing.T) {
	t.Run("UX-CLI-1 the pages of the command line are those of its commands", func(t *testing.T) {
		pages := Pages(cli.Commands())
		for name, text := range pages {
			if b, err := os.ReadFile(filepath.Join(root, "docs/cli", name)); err != nil || string(b) != text {
				t.Errorf("docs/cli/%s is not current (%v): make generate", name, err)
			}
		}
		found, err := filepath.Glob(filepath.Join(root, "docs/cli/*.md"))
		if err != nil || len(found) != len(pages) {
			t.Errorf("%d pages in docs/cli, want %d (%v)", len(found), len(pages), err)
		}
	})
}

func TestPages(t *testing.T) {
	top := &cobra.Command{Use: "capstan", Long: "Does <things>.\n\n  an example"}
	top.PersistentFlags().String("server", "", "where")
	noun := &cobra.Command{Use: "app", Short: "Applications"}
	verb := &cobra.Command{Use: "list", Short: "List them", Aliases: []string{"ls"}, Example: "  capstan app list", Run: func(*cobra.Command, []string) {}}
	verb.Flags().StringP("selector", "l", "a=b", "one | other")
	hidden := &cobra.Command{Use: "secret", Short: "Nobody's business", Hidden: true, Run: func(*cobra.Command, []string) {}}
	noun.AddCommand(verb, hidden)
	top.AddCommand(noun, &cobra.Command{Use: "version", Short: "Print it", Run: func(*cobra.Command, []string) {}})
	pages := Pages(top)
	for name, wants := range map[string][]string{
		"app.md":   {"# capstan app\n", "## capstan app list\n", "Also: `ls`.", "| `-l, --selector string` | one \\| other (default a=b) |", "```\ncapstan app list\n```"},
		"index.md": {"Does &lt;things&gt;.", "```\n  an example\n```", "| [capstan app](app.md) | Applications |", "## capstan version", "| `--server string` | where |"},
	} {
		for _, want := range wants {
			if !strings.Contains(pages[name], want) {
				t.Errorf("%s lacks %q:\n%s", name, want, pages[name])
			}
		}
		if strings.Contains(pages[name], "Nobody") {
			t.Errorf("%s shows a hidden command", name)
		}
	}
	if len(pages) != 2 {
		t.Errorf("%d pages", len(pages))
	}
}

// Commands of the documentation and the README exist, with their flags.
func TestCommandsOfTheDocumentation(t *testing.T) {
	var files []string
	if err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d fs.DirEntry, err error) error {
		if d.IsDir() && d.Name() == "decisions" {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, ".md") {
			files = append(files, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	files = append(files, filepath.Join(root, "README.md"), filepath.Join(root, "charts/capstan-hub/README.md"), filepath.Join(root, "charts/capstan-agent/README.md"))
	checked := 0
	t.Run("UX-API-8 every command that the documentation names exists, with its flags", func(t *testing.T) {
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range commandLines(string(b)) {
				checked++
				if cause := check(line); cause != "" {
					t.Errorf("%s: %s: %s", strings.TrimPrefix(file, root+"/"), line, cause)
				}
			}
		}
	})
	if checked < 300 {
		t.Errorf("only %d commands were found", checked)
	}
	for line, want := range map[string]string{"capstan app nothing": "unknown", "capstan app list --nothing": "--nothing", "capstan app sync shop --revision v1 # why": "", "capstan app list -l a=b": ""} {
		if cause := check(line); (want == "") != (cause == "") || !strings.Contains(cause, want) {
			t.Errorf("%s: %q, want %q", line, cause, want)
		}
	}
}

var (
	continued = regexp.MustCompile(`\\\n\s*`)
	quoted    = regexp.MustCompile("`(capstan [^`\n]+)`")
	plainLine = regexp.MustCompile(`(?m)^(?:    )?(?:.* \| )?(capstan [a-z].*)$`)
	fenced    = regexp.MustCompile("(?ms)^```[^\n]*\n(.*?)^```")
	flagName  = regexp.MustCompile(`^-{1,2}[a-zA-Z][a-zA-Z0-9-]*`)
)

// commandLines are the commands in blocks of code and in the text.
func commandLines(text string) []string {
	text = continued.ReplaceAllString(text, " ")
	var out []string
	for _, block := range fenced.FindAllStringSubmatch(text, -1) {
		for _, m := range plainLine.FindAllStringSubmatch(block[1], -1) {
			out = append(out, m[1])
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^    (capstan [a-z].*)$`).FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		out = append(out, m[1])
	}
	for _, m := range quoted.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		out = append(out, m[1])
	}
	return out
}

// check says why a command cannot be run as it is written, or nothing.
func check(line string) string {
	line, _, _ = strings.Cut(line, " # ")
	line, _, _ = strings.Cut(line, " | ")
	line, _, _ = strings.Cut(line, " < ")
	line, _, _ = strings.Cut(line, " -- ")
	words := strings.Fields(line)[1:]
	top := cli.Commands()
	if len(words) == 0 || words[0] == "help" || strings.HasPrefix(words[0], "NOUN") {
		return ""
	}
	var verbs []string
	for _, w := range words {
		if strings.HasPrefix(w, "-") {
			break
		}
		verbs = append(verbs, w)
	}
	c, _, err := top.Find(verbs)
	if err != nil || c == top && len(verbs) > 0 {
		return "unknown command"
	}
	if c.HasAvailableSubCommands() && !acts(c) && len(verbs) > 1 && len(verbs) > depth(c) && strings.ToLower(verbs[depth(c)]) == verbs[depth(c)] {
		return "unknown verb " + verbs[depth(c)]
	}
	for _, w := range words {
		name := flagName.FindString(w)
		switch {
		case name == "" || name == "-h" || name == "--help" || name == "--version":
		case strings.HasPrefix(name, "--"):
			if c.Flag(name[2:]) == nil {
				return "no flag " + name
			}
		case len(name) == 2:
			if c.Flags().ShorthandLookup(name[1:]) == nil && c.InheritedFlags().ShorthandLookup(name[1:]) == nil && c.PersistentFlags().ShorthandLookup(name[1:]) == nil {
				return "no flag " + name
			}
		}
	}
	return ""
}

// depth is the number of words of a command without the first one.
func depth(c *cobra.Command) int { return len(strings.Fields(c.CommandPath())) - 1 }
