package main

import (
	"errors"
	"fmt"
	"os/user"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/checkpoints"
)

func newCheckpoints(o *options) *cobra.Command {
	c := &cobra.Command{
		Use:   "checkpoints",
		Short: "List, show, promote and roll back checkpoints",
		Args:  cobra.NoArgs,
	}
	c.AddCommand(newCheckpointsList(o), newCheckpointsShow(o), newCheckpointsPromote(o), newCheckpointsRollback(o))
	return c
}

// whoAmI names the user for the records.
func whoAmI() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "unknown"
}

// listed is one line of `checkpoints list`.
type listed struct {
	Ref     string             `json:"ref"`
	Digest  specstream.Digest  `json:"digest"`
	Run     string             `json:"run"`
	Step    int64              `json:"step"`
	Created time.Time          `json:"created"`
	Metrics map[string]float64 `json:"metrics,omitempty"`
	Aliases []string           `json:"aliases,omitempty"`
}

func newCheckpointsList(o *options) *cobra.Command {
	var conn connection
	c := &cobra.Command{
		Use:   "list",
		Short: "List committed adapters and the aliases that name them",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			env, err := conn.env(ctx, "")
			if err != nil {
				return err
			}
			repo := env.Repo
			aliases, err := repo.Aliases(ctx)
			if err != nil {
				return err
			}
			names := map[string][]string{}
			for _, a := range aliases {
				p, err := repo.Current(ctx, a)
				if err != nil {
					return err
				}
				names[p.Ref.Key] = append(names[p.Ref.Key], a)
			}
			runs, err := repo.Runs(ctx)
			if err != nil {
				return err
			}
			list := []listed{}
			for _, run := range runs {
				ref, m, ok, err := repo.Latest(ctx, run)
				if err != nil {
					return err
				}
				if ok && m.Kind == checkpoints.KindAdapter {
					list = append(list, listed{ref.String(), m.Content, run, m.Step, m.Created, m.Metrics, names[ref.Key]})
				}
			}
			return o.print(cmd.OutOrStdout(), list, func(w writer) {
				t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
				fmt.Fprintln(t, "CREATED\tRUN\tSTEP\tLOSS\tALIASES\tREFERENCE")
				for _, l := range list {
					fmt.Fprintf(t, "%s\t%s\t%d\t%.4f\t%v\t%s\n", l.Created.Format(time.DateTime), l.Run, l.Step, l.Metrics["loss"], l.Aliases, l.Ref)
				}
				t.Flush()
			})
		},
	}
	conn.register(c)
	return c
}

func newCheckpointsShow(o *options) *cobra.Command {
	var conn connection
	c := &cobra.Command{
		Use:   "show REFERENCE|ALIAS",
		Short: "Show a checkpoint's manifest, or an alias's history",
		Args:  exactArgs(1, "a reference or an alias"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			env, err := conn.env(ctx, "")
			if err != nil {
				return err
			}
			if ref, err := specstream.ParseRef(args[0]); err == nil {
				m, err := env.Repo.ReadManifest(ctx, ref)
				if err != nil {
					return err
				}
				return o.print(cmd.OutOrStdout(), m, func(w writer) {
					fmt.Fprintf(w, "%s %s step %d, content %s\ncreated %s by %s\n", m.Kind, m.Run, m.Step, m.Content, m.Created.Format(time.RFC3339), m.Writer)
					for _, p := range m.Parents {
						fmt.Fprintf(w, "from %s\n", p)
					}
					for _, f := range m.Files {
						fmt.Fprintf(w, "%12d  %s  %s\n", f.Size, f.Digest.Short(), f.Name)
					}
				})
			}
			log, err := env.Repo.History(ctx, args[0])
			if err != nil {
				return err
			}
			if len(log) == 0 {
				return &specstream.InputError{Field: "REFERENCE|ALIAS", Reason: fmt.Sprintf("%q is neither a reference nor an alias of this store", args[0]), Hint: "`specstream checkpoints list` prints both"}
			}
			return o.print(cmd.OutOrStdout(), log, func(w writer) {
				for _, p := range log {
					what := "promoted"
					if p.RollbackTo > 0 {
						what = fmt.Sprintf("rolled back to generation %d:", p.RollbackTo)
					}
					fmt.Fprintf(w, "%d  %s  %s by %s %s\n   %s\n", p.Generation, p.At.Format(time.RFC3339), what, p.Who, p.Why, p.Ref)
				}
			})
		},
	}
	conn.register(c)
	return c
}

// reasons are the flags that say who changes an alias and why.
type reasons struct {
	alias, who, why string
}

func (r *reasons) register(c *cobra.Command) {
	c.Flags().StringVar(&r.alias, "alias", "production", "the alias")
	c.Flags().StringVar(&r.who, "who", whoAmI(), "who does it, for the record")
	c.Flags().StringVar(&r.why, "why", "", "why, for the record")
}

func printPromotion(o *options, w writer, p checkpoints.Promotion) error {
	return o.print(w, p, func(w writer) { fmt.Fprintf(w, "%s generation %d is %s\n", p.Alias, p.Generation, p.Ref) })
}

func newCheckpointsPromote(o *options) *cobra.Command {
	var (
		conn connection
		why  reasons
	)
	c := &cobra.Command{
		Use:   "promote REFERENCE",
		Short: "Make an alias name a checkpoint, without a pipeline's gates and approval",
		Args:  exactArgs(1, "a checkpoint's reference"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, err := specstream.ParseRef(args[0])
			if err != nil {
				return usageError{err}
			}
			env, err := conn.env(cmd.Context(), "")
			if err != nil {
				return err
			}
			m, err := env.Repo.ReadManifest(cmd.Context(), ref)
			if err != nil {
				return err
			}
			if m.Kind != checkpoints.KindAdapter {
				return &specstream.InputError{File: ref.Key, Field: "kind", Reason: fmt.Sprintf("is a %s; only adapters are promoted", m.Kind)}
			}
			p, err := env.Repo.Promote(cmd.Context(), why.alias, checkpoints.PromoteRequest{Ref: ref, Who: why.who, Why: why.why})
			if err != nil {
				return err
			}
			return printPromotion(o, cmd.OutOrStdout(), p)
		},
	}
	conn.register(c)
	why.register(c)
	return c
}

func newCheckpointsRollback(o *options) *cobra.Command {
	var (
		conn connection
		why  reasons
	)
	c := &cobra.Command{
		Use:   "rollback [GENERATION]",
		Short: "Make an alias name what it named before, or at a generation",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := checkpoints.RollbackRequest{Who: why.who, Why: why.why}
			if len(args) == 1 {
				g, err := strconv.ParseInt(args[0], 10, 64)
				if err != nil || g < 1 {
					return usageError{fmt.Errorf("generation %q is not a positive number", args[0])}
				}
				req.To = g
			}
			env, err := conn.env(cmd.Context(), "")
			if err != nil {
				return err
			}
			p, err := env.Repo.Rollback(cmd.Context(), why.alias, req)
			if errors.Is(err, checkpoints.ErrNotFound) {
				return &specstream.InputError{Field: "GENERATION", Err: err, Hint: "`specstream checkpoints show " + why.alias + "` prints the history"}
			}
			if err != nil {
				return err
			}
			return printPromotion(o, cmd.OutOrStdout(), p)
		},
	}
	conn.register(c)
	why.register(c)
	return c
}
