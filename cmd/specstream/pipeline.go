package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/workflows"
)

func newPipeline(o *options) *cobra.Command {
	c := &cobra.Command{
		Use:   "pipeline",
		Short: "Start, watch, approve, reject and cancel pipelines",
		Args:  cobra.NoArgs,
	}
	c.AddCommand(newPipelineStart(o), newPipelineStatus(o), newPipelineDecide(o, true), newPipelineDecide(o, false), newPipelineCancel(o))
	return c
}

// readJob reads a job from a file, or standard input for "-".
func readJob(path string) (specstream.JobSpec, error) {
	var spec specstream.JobSpec
	var r io.Reader = os.Stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return spec, &specstream.InputError{File: path, Reason: "cannot be opened", Err: err}
		}
		defer f.Close()
		r = f
	}
	if err := specstream.DecodeStrict(path, r, &spec); err != nil {
		return spec, err
	}
	return spec, nil
}

func newPipelineStart(o *options) *cobra.Command {
	var (
		conn connection
		file string
		wait bool
	)
	c := &cobra.Command{
		Use:   "start --input-file job.json",
		Short: "Start a pipeline",
		Long: `Start a pipeline from a job's JSON. The same job twice is one pipeline while it runs.
This does what "temporal workflow start --type Pipeline --task-queue specstream
--input-file job.json" does, after checking the job.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if err := required("input-file", file); err != nil {
				return err
			}
			spec, err := readJob(file)
			if err != nil {
				return err
			}
			cl, err := conn.temporal(ctx, os.Stderr)
			if err != nil {
				return err
			}
			defer cl.Close()
			run, err := startPipeline(ctx, cl, spec)
			if err != nil {
				return err
			}
			if !wait {
				id := struct {
					ID  string `json:"id"`
					Run string `json:"run"`
				}{run.GetID(), run.GetRunID()}
				return o.print(cmd.OutOrStdout(), id, func(w writer) { fmt.Fprintf(w, "%s\n", id.ID) })
			}
			r, err := o.newReporter()
			if err != nil {
				return err
			}
			defer r.finish()
			res, err := followPipeline(ctx, cl, run, r, nil)
			if err != nil {
				return err
			}
			r.finish()
			if err := o.print(cmd.OutOrStdout(), res, func(w writer) { printResult(w, res) }); err != nil {
				return err
			}
			return resultError(res)
		},
	}
	conn.register(c)
	c.Flags().StringVar(&file, "input-file", "", "the job's JSON; - for standard input")
	c.Flags().BoolVar(&wait, "wait", false, "follow the pipeline to its end")
	return c
}

// startPipeline starts or joins the pipeline of a job.
func startPipeline(ctx context.Context, cl client.Client, spec specstream.JobSpec) (client.WorkflowRun, error) {
	opts, err := workflows.StartOptions(spec)
	if err != nil {
		return nil, err
	}
	run, err := cl.ExecuteWorkflow(ctx, opts, workflows.PipelineWorkflow, spec)
	if err != nil {
		return nil, fmt.Errorf("start pipeline: %w", err)
	}
	return run, nil
}

// A status is asked for with a short deadline, again and again, since servers and
// workers restart; statusWait is how long the command line goes on asking.
const (
	statusDeadline = 2 * time.Second
	statusWait     = 20 * time.Second
)

// status asks a pipeline how far it is, until it answers or statusWait is over.
func status(ctx context.Context, cl client.Client, id, run string) (workflows.Status, error) {
	for began := time.Now(); ; {
		s, err := askStatus(ctx, cl, id, run)
		if err == nil || specstream.BadInput(err) || time.Since(began) > statusWait || ctx.Err() != nil {
			return s, err
		}
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return s, err
		}
	}
}

// askStatus asks once.
func askStatus(ctx context.Context, cl client.Client, id, run string) (workflows.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, statusDeadline)
	defer cancel()
	var s workflows.Status
	v, err := cl.QueryWorkflow(ctx, id, run, workflows.StatusQuery)
	if err == nil {
		err = v.Get(&s)
	}
	var (
		missing *serviceerror.NotFound
		refused *serviceerror.QueryFailed
	)
	switch {
	case err == nil:
		return s, nil
	case errors.As(err, &missing):
		return s, &specstream.InputError{Field: "ID", Reason: fmt.Sprintf("there is no pipeline %q", id)}
	case errors.As(err, &refused):
		// A job that could not even be read answers no queries; why is its result.
		if err := workflowError(cl.GetWorkflow(ctx, id, run).Get(ctx, nil)); specstream.BadInput(err) {
			return s, err
		}
	}
	return s, fmt.Errorf("ask pipeline %s (is a worker running?): %w", id, err)
}

// followPipeline shows a pipeline's progress until it ends. decide, if not nil,
// is called once when the pipeline waits for approval.
func followPipeline(ctx context.Context, cl client.Client, run client.WorkflowRun, r *reporter, decide func(context.Context, workflows.Status) error) (workflows.PipelineResult, error) {
	var res workflows.PipelineResult
	done := make(chan error, 1)
	go func() { done <- awaitResult(ctx, run, &res) }()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	asked := false
	for {
		select {
		case err := <-done:
			return res, workflowError(err)
		case <-tick.C:
		}
		s, err := askStatus(ctx, cl, run.GetID(), run.GetRunID())
		if err != nil {
			if ctx.Err() != nil {
				return res, ctx.Err()
			}
			continue // a restarting server or worker; the wait for the result goes on
		}
		for _, e := range stageEvents(ctx, cl, s) {
			r.report(e)
		}
		if s.Waiting != nil && s.Decision == nil && decide != nil && !asked {
			asked = true
			r.finish()
			if err := decide(ctx, s); err != nil {
				return res, err
			}
		}
	}
}

// awaitResult waits for a pipeline's result however often the server is away.
func awaitResult(ctx context.Context, run client.WorkflowRun, res *workflows.PipelineResult) error {
	for {
		err := run.Get(ctx, res)
		var (
			away *serviceerror.Unavailable
			slow *serviceerror.DeadlineExceeded
		)
		if ctx.Err() != nil || !errors.As(err, &away) && !errors.As(err, &slow) {
			return err
		}
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

// stageEvents renders where a pipeline is: the steps of what is training or
// being evaluated, else the stage.
func stageEvents(ctx context.Context, cl client.Client, s workflows.Status) (out []event) {
	for _, m := range s.Modes {
		id := m.TrainWorkflow
		if m.Stage == workflows.ModeEvaluating {
			id = m.EvaluateWorkflow
		}
		if m.Stage != workflows.ModeTraining && m.Stage != workflows.ModeEvaluating {
			continue
		}
		d, err := describe(ctx, cl, id)
		if err != nil {
			continue // it is about to start, or the server to come back
		}
		for _, a := range d.GetPendingActivities() {
			var h workflows.Heartbeat
			if err := converter.GetDefaultDataConverter().FromPayloads(a.GetHeartbeatDetails(), &h); err == nil && h.Steps > 0 {
				out = append(out, event{Stage: string(m.Mode) + " " + h.Stage, Step: h.Step, Steps: h.Steps, Loss: h.Loss, TokensPerSecond: h.TokensPerSecond, ETASeconds: h.ETASeconds})
			}
		}
	}
	if len(out) == 0 {
		out = append(out, event{Stage: string(s.Stage)})
	}
	return out
}

// describe asks the server about a workflow, for a short time.
func describe(ctx context.Context, cl client.Client, id string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, statusDeadline)
	defer cancel()
	return cl.DescribeWorkflowExecution(ctx, id, "")
}

// workflowError turns a failed pipeline into the error its user should see.
func workflowError(err error) error {
	if err == nil {
		return nil
	}
	var canceled *temporal.CanceledError
	if errors.As(err, &canceled) {
		return notPromotedError{"cancelled"}
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		var app *temporal.ApplicationError
		if errors.As(e, &app) && app.Type() == workflows.BadInput {
			return &specstream.InputError{Reason: app.Message()}
		}
	}
	return fmt.Errorf("pipeline: %w", err)
}

// resultError is nil for a promoted result.
func resultError(res workflows.PipelineResult) error {
	if res.Outcome != workflows.Promoted {
		return notPromotedError{string(res.Outcome)}
	}
	return nil
}

func newPipelineStatus(o *options) *cobra.Command {
	var conn connection
	c := &cobra.Command{
		Use:   "status [ID]",
		Short: "Show a pipeline, or list the newest ones",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			cl, err := conn.temporal(ctx, os.Stderr)
			if err != nil {
				return err
			}
			defer cl.Close()
			if len(args) == 0 {
				return listPipelines(ctx, o, cmd.OutOrStdout(), cl)
			}
			s, err := status(ctx, cl, args[0], "")
			if err != nil {
				return err
			}
			return o.print(cmd.OutOrStdout(), s, func(w writer) { printStatus(w, s) })
		},
	}
	conn.register(c)
	return c
}

func printStatus(w writer, s workflows.Status) {
	fmt.Fprintf(w, "%s  job %s  %s  %s\n", s.Name, s.Job.Short(), s.Stage, s.Outcome)
	for _, m := range s.Modes {
		fmt.Fprintf(w, "  %-9s %s", m.Mode, m.Stage)
		if m.Checkpoint != nil {
			fmt.Fprintf(w, "  loss %.4f  %s", m.Checkpoint.FinalLoss, m.Checkpoint.Ref)
		}
		if e := m.Evaluation; e != nil {
			fmt.Fprintf(w, "\n            mean accepted tokens %.2f, parity %.4f, %d prompts, speed-up %.2f", e.MeanAcceptedTokens, e.Parity, e.Prompts, e.Speedup)
		}
		fmt.Fprintln(w)
	}
	if s.Waiting != nil {
		fmt.Fprintf(w, "waiting until %s for approval of the %s checkpoint for %s:\n  job        %s\n  dataset    %s\n  checkpoint %s\n  evaluation %s\n",
			s.Waiting.Deadline.Format(time.RFC3339), s.Waiting.Mode, s.Waiting.Alias, s.Waiting.Job, s.Waiting.Dataset, s.Waiting.Checkpoint, s.Waiting.Evaluation)
	}
	if s.Promotion != nil {
		fmt.Fprintf(w, "%s generation %d is %s\n", s.Promotion.Alias, s.Promotion.Generation, s.Promotion.Ref)
	}
	for _, warning := range s.Warnings {
		fmt.Fprintf(w, "warning: %s\n", warning)
	}
}

func listPipelines(ctx context.Context, o *options, w io.Writer, cl client.Client) error {
	type line struct {
		ID      string    `json:"id"`
		Status  string    `json:"status"`
		Started time.Time `json:"started"`
	}
	list := []line{}
	it, err := cl.ListWorkflow(ctx, &listRequest{Query: "WorkflowType = '" + workflows.PipelineWorkflow + "'", PageSize: 20})
	if err != nil {
		return fmt.Errorf("list pipelines: %w", err)
	}
	for _, e := range it.GetExecutions() {
		list = append(list, line{e.GetExecution().GetWorkflowId(), strings.ToLower(strings.TrimPrefix(enumspb.WorkflowExecutionStatus_name[int32(e.GetStatus())], "WORKFLOW_EXECUTION_STATUS_")), e.GetStartTime().AsTime()})
	}
	return o.print(w, list, func(w writer) {
		for _, l := range list {
			fmt.Fprintf(w, "%s  %-10s %s\n", l.Started.Format(time.DateTime), l.Status, l.ID)
		}
	})
}

// newPipelineDecide makes the approve and reject commands.
func newPipelineDecide(o *options, approve bool) *cobra.Command {
	var (
		conn     connection
		who, why string
		yes      bool
		expected string
	)
	use, short := "reject ID --why REASON", "Turn down the checkpoint a pipeline waits with"
	if approve {
		use, short = "approve ID", "Approve the checkpoint a pipeline waits with"
	}
	c := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  exactArgs(1, "a pipeline's id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			cl, err := conn.temporal(ctx, os.Stderr)
			if err != nil {
				return err
			}
			defer cl.Close()
			s, err := status(ctx, cl, args[0], "")
			if err != nil {
				return err
			}
			if s.Waiting == nil {
				return &specstream.InputError{Field: "ID", Reason: fmt.Sprintf("pipeline %s is at stage %s and waits for nobody", args[0], s.Stage)}
			}
			if expected != "" && specstream.Digest(expected) != s.Waiting.Checkpoint {
				return &specstream.InputError{Field: "checkpoint", Reason: fmt.Sprintf("the pipeline waits with %s", s.Waiting.Checkpoint), Hint: "look at that one before deciding"}
			}
			if approve && !yes && expected == "" {
				printStatus(os.Stderr, s)
				if !confirm("approve?") {
					return errors.New("not approved")
				}
			}
			if !approve && why == "" {
				return required("why", "")
			}
			d, err := decide(ctx, cl, args[0], s.Waiting.Evidence, approve, who, why)
			if err != nil {
				return err
			}
			return o.print(cmd.OutOrStdout(), d, func(w writer) {
				what := "rejected"
				if d.Approved {
					what = "approved"
				}
				fmt.Fprintf(w, "%s by %s\n", what, d.Who)
			})
		},
	}
	conn.register(c)
	c.Flags().StringVar(&who, "who", whoAmI(), "who decides, for the record")
	c.Flags().StringVar(&why, "why", "", "why, for the record")
	c.Flags().StringVar(&expected, "checkpoint", "", "decide only about the checkpoint of this digest")
	if approve {
		c.Flags().BoolVarP(&yes, "yes", "y", false, "approve whatever is waiting without asking")
	}
	return c
}

// decide sends an approval or a rejection of exactly the given evidence.
func decide(ctx context.Context, cl client.Client, id string, e workflows.Evidence, approve bool, who, why string) (workflows.Decision, error) {
	name, arg := workflows.RejectUpdate, any(workflows.RejectInput{Evidence: e, Who: who, Why: why})
	if approve {
		name, arg = workflows.ApproveUpdate, workflows.ApproveInput{Evidence: e, Who: who, Why: why}
	}
	var d workflows.Decision
	h, err := cl.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{WorkflowID: id, UpdateName: name, Args: []any{arg}, WaitForStage: client.WorkflowUpdateStageCompleted})
	if err == nil {
		err = h.Get(ctx, &d)
	}
	if err != nil {
		return d, fmt.Errorf("%s pipeline %s: %w", name, id, err)
	}
	return d, nil
}

// confirm asks a yes-or-no question on the terminal; anything but y is no.
func confirm(question string) bool {
	fmt.Fprintf(os.Stderr, "%s [y/N] ", question)
	answer, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil && answer == "" {
		fmt.Fprintln(os.Stderr)
		return false
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}

func newPipelineCancel(o *options) *cobra.Command {
	var conn connection
	c := &cobra.Command{
		Use:   "cancel ID",
		Short: "Cancel a pipeline: its child processes are stopped, nothing half done is left",
		Args:  exactArgs(1, "a pipeline's id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			cl, err := conn.temporal(ctx, os.Stderr)
			if err != nil {
				return err
			}
			defer cl.Close()
			err = cl.CancelWorkflow(ctx, args[0], "")
			var missing *serviceerror.NotFound
			if errors.As(err, &missing) {
				return &specstream.InputError{Field: "ID", Reason: fmt.Sprintf("no pipeline %q is running", args[0])}
			}
			if err != nil {
				return fmt.Errorf("cancel pipeline %s: %w", args[0], err)
			}
			return o.print(cmd.OutOrStdout(), map[string]string{"id": args[0], "requested": "cancel"}, func(w writer) { fmt.Fprintf(w, "asked %s to cancel\n", args[0]) })
		},
	}
	conn.register(c)
	return c
}
