package appset

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/exit"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

// reread is how often a set is read again while a command waits for it.
const reread = 500 * time.Millisecond

const fromFile = "a file with ApplicationSets, a URL, or - for standard input"

func (c commands) create() *cobra.Command {
	var upsert, dryRun, stay bool
	var in string
	var timeout int
	cmd := &cobra.Command{
		Use: "create FILE", Short: "Make ApplicationSets of a file", Args: usage.Exactly(fromFile),
		Example: "  capstan appset create fleet.yaml\n  capstan appset create fleet.yaml --dry-run\n  capstan appset create https://git.example.com/fleet.yaml --upsert --wait\n  cat fleet.yaml | capstan appset create -",
		RunE: func(cmd *cobra.Command, args []string) error {
			sets, err := c.read(cmd.Context(), args[0], in)
			if err != nil {
				return err
			}
			api, err := c.Client()
			if err != nil {
				return err
			}
			if dryRun {
				return c.dryRun(cmd.Context(), api, sets, upsert)
			}
			var stored []apimodel.ApplicationSet
			var raws []json.RawMessage
			for _, s := range sets {
				x, raw, err := client.Call[apimodel.ApplicationSet](api.CreateApplicationSet(cmd.Context(), apimodel.CreateApplicationSetParams{Upsert: upsert}, s))
				if err != nil {
					return fault.With(err, "ApplicationSet "+client.QualifiedName(s.Metadata), "")
				}
				c.Warn(x.Warnings)
				stored, raws = append(stored, x), append(raws, raw)
			}
			for i, s := range stored {
				if stay {
					if stored[i], raws[i], err = generated(cmd.Context(), api, s, time.Duration(timeout)*time.Second); err != nil {
						return err
					}
				}
			}
			return c.printAll(raws, table(stored...))
		},
	}
	cmd.Flags().BoolVar(&upsert, "upsert", false, "change a set that is there")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "check everything, show the applications that there would be, and store nothing")
	cmd.Flags().BoolVar(&stay, "wait", false, "wait until its applications are made")
	cmd.Flags().IntVar(&timeout, "timeout", 300, "with --wait: give up after so many seconds")
	addNamespace(cmd, &in)
	return cmd
}

// dryRun has the hub check sets as a write does, and shows what they would make.
func (c commands) dryRun(ctx context.Context, api *client.Client, sets []apimodel.ApplicationSet, upsert bool) error {
	for _, s := range sets {
		x, _, err := client.Call[apimodel.ApplicationSet](api.CreateApplicationSet(ctx, apimodel.CreateApplicationSetParams{Upsert: upsert, DryRun: true}, s))
		if err != nil {
			return fault.With(err, "ApplicationSet "+client.QualifiedName(s.Metadata), "")
		}
		c.Warn(x.Warnings)
	}
	return c.preview(ctx, api, sets)
}

func (c commands) generate() *cobra.Command {
	var in string
	cmd := &cobra.Command{
		Use: "generate FILE", Short: "Show the applications that an ApplicationSet would make, and store nothing", Args: usage.Exactly(fromFile),
		Example: "  capstan appset generate fleet.yaml\n  capstan appset generate fleet.yaml -o yaml\n  capstan appset get fleet -o yaml | capstan appset generate -",
		RunE: func(cmd *cobra.Command, args []string) error {
			sets, err := c.read(cmd.Context(), args[0], in)
			if err != nil {
				return err
			}
			api, err := c.Client()
			if err != nil {
				return err
			}
			return c.preview(cmd.Context(), api, sets)
		},
	}
	addNamespace(cmd, &in)
	return cmd
}

// preview shows what sets would make. As JSON and YAML it is the applications,
// as argocd writes them: one alone, or a list.
func (c commands) preview(ctx context.Context, api *client.Client, sets []apimodel.ApplicationSet) error {
	t := output.Table{Head: []string{"ACTION", "APPLICATION", "PROJECT", "CLUSTER", "NAMESPACE", "NOTE", "REPOSITORY", "PATH", "TARGET"}, Wide: 3}
	apps := []apimodel.Application{} // a list without items is [], not null
	for _, s := range sets {
		p, _, err := client.Call[apimodel.ApplicationSetPreview](api.GenerateApplicationSet(ctx, s))
		if err != nil {
			return fault.With(err, "ApplicationSet "+client.QualifiedName(s.Metadata), "")
		}
		c.Warn(p.Warnings)
		apps = append(apps, p.Applications...)
		for _, i := range p.Items {
			addPreviewed(&t, i)
		}
		if p.Counts.Held > 0 {
			c.Note("capstan: %d applications of %s would not be deleted without consent", p.Counts.Held, client.QualifiedName(s.Metadata))
		}
	}
	var value any = apps
	if len(apps) == 1 {
		value = apps[0]
	}
	return c.PrintValue(value, t)
}

func addPreviewed(t *output.Table, i apimodel.PreviewedApplication) {
	var x struct {
		Spec struct {
			Project string `json:"project"`
			Source  struct {
				RepoURL        string `json:"repoURL"`
				Path           string `json:"path"`
				TargetRevision string `json:"targetRevision"`
			} `json:"source"`
			Destination struct {
				Server    string `json:"server"`
				Name      string `json:"name"`
				Namespace string `json:"namespace"`
			} `json:"destination"`
		} `json:"spec"`
	}
	body := i.After
	if len(body) == 0 {
		body = i.Before
	}
	_ = json.Unmarshal(body, &x) // one without a body has a problem, which is shown
	note := i.Problem
	if i.Held {
		note = strings.TrimPrefix(note+"; waits for consent", "; ")
	}
	d := x.Spec.Destination
	name := client.QualifiedName(apimodel.Metadata{Namespace: i.Namespace, Name: i.Name})
	t.Rows = append(t.Rows, []string{
		string(i.Action), output.Dash(name), output.Dash(x.Spec.Project), output.Dash(d.Name + d.Server), output.Dash(d.Namespace), output.Dash(note),
		output.Dash(x.Spec.Source.RepoURL), output.Dash(x.Spec.Source.Path), output.Dash(x.Spec.Source.TargetRevision),
	})
	if i.Action != apimodel.PreviewDelete && i.Problem == "" {
		t.Names = append(t.Names, "application/"+name)
	}
}

// printAll prints the answers for one set or several.
func (c commands) printAll(raws []json.RawMessage, t output.Table) error {
	if len(raws) == 1 {
		return c.Print(raws[0], t)
	}
	return c.PrintValue(map[string]any{"apiVersion": "v1", "kind": "List", "items": raws}, t)
}

// generated waits until the applications of a set are as its spec says.
func generated(ctx context.Context, api *client.Client, s apimodel.ApplicationSet, most time.Duration) (apimodel.ApplicationSet, []byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, most, exit.ErrTimeout)
	defer cancel()
	for {
		x, raw, err := client.Call[apimodel.ApplicationSet](api.GetApplicationSet(ctx, s.Metadata.Namespace, s.Metadata.Name))
		if err != nil {
			return s, nil, timedOut(ctx, err)
		}
		if x.Status.Capstan.ObservedGeneration >= s.Metadata.Generation {
			if held := x.Status.Capstan.Held; held.Count > 0 && held.ConsentedBy == "" {
				err := fault.New(fault.Conflict, "ApplicationSet %s: %d of %d applications are only deleted with consent", client.QualifiedName(x.Metadata), held.Count, held.Of)
				return s, nil, fault.With(err, "", "`capstan appset approve "+client.QualifiedName(x.Metadata)+"` deletes them")
			}
			for _, c := range x.Status.Conditions {
				switch {
				case c.Type == errorOccurred && c.Status == isTrue:
					return s, nil, fault.New(fault.Invalid, "ApplicationSet %s: %s", client.QualifiedName(x.Metadata), c.Message)
				case c.Type == upToDate && c.Status == isTrue:
					return x, raw, nil
				}
			}
		}
		if err := pause(ctx); err != nil {
			return s, nil, timedOut(ctx, err)
		}
	}
}

// pause waits until a set is to be read again.
func pause(ctx context.Context) error {
	t := time.NewTimer(reread)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// timedOut is why a wait ended: its time, if that is over.
func timedOut(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

func (c commands) refresh() *cobra.Command {
	return c.one("refresh NAME", "Run the generators of an ApplicationSet again", "  capstan appset refresh fleet",
		func(cmd *cobra.Command, api *client.Client, namespace, name string) error {
			_, err := client.Read(api.RefreshApplicationSet(cmd.Context(), namespace, name))
			return err
		})
}

func (c commands) approve() *cobra.Command {
	var yes bool
	var digest string
	cmd := c.one("approve NAME", "Consent to the deletion of applications that an ApplicationSet holds", "  capstan appset approve fleet\n  capstan appset approve fleet --yes",
		func(cmd *cobra.Command, api *client.Client, namespace, name string) error {
			x, _, err := client.Call[apimodel.ApplicationSet](api.GetApplicationSet(cmd.Context(), namespace, name))
			if err != nil {
				return err
			}
			held := x.Status.Capstan.Held
			switch {
			case held.Count == 0:
				return fault.New(fault.Conflict, "ApplicationSet %s holds no deletion", name)
			case digest != "" && digest != held.Digest:
				return fault.With(fault.New(fault.Conflict, "the digest is not that of what is held now"), "ApplicationSet "+name, "look at `capstan appset get "+client.QualifiedName(x.Metadata)+"`")
			}
			question := fmt.Sprintf("Delete %d of the %d applications of %s: %s?", held.Count, held.Of, name, strings.Join(held.Applications, ", "))
			if err := c.Confirm(yes, question); err != nil {
				return err
			}
			_, err = client.Read(api.ApproveApplicationSet(cmd.Context(), namespace, name, apimodel.ApproveApplicationSet{Digest: held.Digest}))
			return err
		})
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().StringVar(&digest, "digest", "", "refuse to consent to another list than the one with this digest")
	return cmd
}

func (c commands) remove() *cobra.Command {
	var yes, stay bool
	var cascade, in string
	var timeout int
	cmd := &cobra.Command{
		Use: "delete NAME...", Short: "Delete ApplicationSets, with their applications unless --cascade=false", Args: cobra.MinimumNArgs(1),
		Example: "  capstan appset delete fleet\n  capstan appset delete fleet canary --yes --wait\n  capstan appset delete fleet --cascade=false --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			var params apimodel.DeleteApplicationSetParams
			with := " with its applications"
			if cascade != "" {
				v, err := strconv.ParseBool(cascade)
				if err != nil {
					return usage.Errorf("--cascade is true or false, not %q", cascade)
				}
				if params.Cascade = &v; !v {
					with = " and leave its applications"
				}
			}
			api, err := c.Client()
			if err != nil {
				return err
			}
			for _, given := range args {
				namespace, name, err := named(given, in)
				if err != nil {
					return err
				}
				if err := c.Confirm(yes, "Delete ApplicationSet "+given+with+"?"); err != nil {
					return err
				}
				if _, err := client.Read(api.DeleteApplicationSet(cmd.Context(), namespace, name, params)); err != nil {
					return err
				}
				if stay {
					if err := gone(cmd.Context(), api, namespace, name, time.Duration(timeout)*time.Second); err != nil {
						return err
					}
				}
				c.Note("applicationset '%s' deleted", given)
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().StringVar(&cascade, "cascade", "", "false: its applications stay, without an owner (default: they go)")
	cmd.Flags().BoolVar(&stay, "wait", false, "wait until it is gone, with its applications")
	cmd.Flags().IntVar(&timeout, "timeout", 600, "with --wait: give up after so many seconds")
	addNamespace(cmd, &in)
	return cmd
}

// gone waits until a set is deleted.
func gone(ctx context.Context, api *client.Client, namespace, name string, most time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, most, exit.ErrTimeout)
	defer cancel()
	for {
		_, err := client.Read(api.GetApplicationSet(ctx, namespace, name))
		if exit.Of(err) == exit.Missing {
			return nil
		}
		if err == nil {
			err = pause(ctx)
		}
		if err != nil {
			return timedOut(ctx, err)
		}
	}
}
