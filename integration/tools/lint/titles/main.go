// Command titles checks the titles of commits: 72 characters at most. It looks
// at the commits after a fixed one, because those before it were written
// without that rule, and at no merges. "make lint" fails where it finds a title
// that is too long. Where there is no history to read, such as in an unpacked
// archive, it says so and succeeds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"unicode/utf8"
)

// limit is in characters.
const limit = 72

// first is the last commit that the rule does not hold for.
var first = commit{id: "14e40813752ff1d78f8d4cc6e932cf672d2840b5", committed: 1795377858}

// A commit is one of the history.
type commit struct {
	id        string
	committed int64 // seconds since 1970
}

// A title is that of one commit.
type title struct{ id, text string }

func main() {
	root := flag.String("root", ".", "the checkout to read")
	flag.Parse()
	if err := check(context.Background(), os.Stderr, *root, first); err != nil {
		fmt.Fprintln(os.Stderr, "titles:", err)
		os.Exit(1)
	}
}

// check writes what it found to out. An error means that a title is too long or
// that Git failed; a history that is not there is no error.
func check(ctx context.Context, out io.Writer, root string, after commit) error {
	if !history(ctx, root) {
		fmt.Fprintln(out, "titles: titles of commits were not checked: there is no Git history here")
		return nil
	}
	commits, err := commitsAfter(ctx, root, after)
	if errors.Is(err, errUnknown) {
		fmt.Fprintf(out, "titles: titles of commits were not checked: this history does not contain commit %.12s, from which on the rule holds\n", after.id)
		return nil
	}
	if err != nil {
		return err
	}
	long := tooLong(commits)
	for _, c := range long {
		fmt.Fprintf(out, "  %.12s %s\n", c.id, c.text)
	}
	if len(long) > 0 {
		return fmt.Errorf("%d titles of commits have more than %d characters; move the reasons into the body", len(long), limit)
	}
	return nil
}

func tooLong(commits []title) []title {
	var long []title
	for _, c := range commits {
		if utf8.RuneCountInString(c.text) > limit {
			long = append(long, c)
		}
	}
	return long
}

// errUnknown says that the history is complete and lacks the fixed commit.
var errUnknown = errors.New("no such commit")

// commitsAfter returns the commits of HEAD's history after the fixed one. A
// shallow clone may lack the fixed commit; then those count that were committed
// later.
func commitsAfter(ctx context.Context, root string, after commit) ([]title, error) {
	if _, err := git(ctx, root, "merge-base", "--is-ancestor", after.id, "HEAD"); err == nil {
		return titles(ctx, root, after.id+"..HEAD")
	}
	if shallow, err := git(ctx, root, "rev-parse", "--is-shallow-repository"); err != nil || strings.TrimSpace(shallow) != "true" {
		return nil, errUnknown
	}
	return titles(ctx, root, "HEAD", "--since="+strconv.FormatInt(after.committed+1, 10))
}

func titles(ctx context.Context, root string, args ...string) ([]title, error) {
	text, err := git(ctx, root, append([]string{"log", "--no-merges", "--format=%H %s"}, args...)...)
	if err != nil {
		return nil, err
	}
	var commits []title
	for line := range strings.Lines(text) {
		id, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		commits = append(commits, title{id, text})
	}
	return commits, nil
}

// history reports whether the folder itself is a checkout with a commit. A
// folder that merely lies in the checkout of something else is none.
func history(ctx context.Context, root string) bool {
	if _, err := exec.LookPath("git"); err != nil {
		return false
	}
	prefix, err := git(ctx, root, "rev-parse", "--show-prefix")
	if err != nil || strings.TrimSpace(prefix) != "" {
		return false
	}
	_, err = git(ctx, root, "rev-parse", "--verify", "HEAD")
	return err == nil
}

func git(ctx context.Context, root string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}
