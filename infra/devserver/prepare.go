package devserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	namespacepb "go.temporal.io/api/namespace/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"google.golang.org/protobuf/types/known/durationpb"
)

// retention is the least time that closed workflows stay visible in a server of
// our own.
const retention = 30 * 24 * time.Hour

// prepare waits until the namespace can be described, and makes it what the
// options want.
func (s *Server) prepare(ctx context.Context, o Options) error {
	c, err := client.NewLazyClient(client.Options{
		HostPort: s.Address, Namespace: o.Namespace,
		Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	defer c.Close()
	ns, err := s.awaitNamespace(ctx, c, o.Namespace)
	if err != nil {
		return err
	}
	if s.Program.Kind != External && ns.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration() < retention {
		if _, err := c.WorkflowService().UpdateNamespace(ctx, &workflowservice.UpdateNamespaceRequest{
			Namespace: o.Namespace,
			Config:    &namespacepb.NamespaceConfig{WorkflowExecutionRetentionTtl: durationpb.New(retention)},
		}); err != nil {
			return fmt.Errorf("raise the retention of namespace %q: %w", o.Namespace, err)
		}
	}
	return registerSearchAttributes(ctx, c.OperatorService(), o)
}

func (s *Server) awaitNamespace(ctx context.Context, c client.Client, namespace string) (*workflowservice.DescribeNamespaceResponse, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		ns, err := c.WorkflowService().DescribeNamespace(try, &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
		cancel()
		if err == nil {
			return ns, nil
		}
		var missing *serviceerror.NamespaceNotFound
		if s.Program.Kind == External && errors.As(err, &missing) {
			return nil, fmt.Errorf("namespace %q does not exist: create it, or set %s to one that does", namespace, NamespaceEnv)
		}
		select {
		case <-s.done:
			return nil, fmt.Errorf("%w: %s", s.Err(), strings.TrimSpace(s.lastOutput()))
		case <-ctx.Done():
			return nil, fmt.Errorf("%s does not answer: %w: %w", s.Address, ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// registerSearchAttributes adds what is missing. An attribute that a workflow
// sets and the namespace lacks would fail that workflow's every task.
func registerSearchAttributes(ctx context.Context, c operatorservice.OperatorServiceClient, o Options) error {
	if len(o.SearchAttributes) == 0 {
		return nil
	}
	have, err := c.ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: o.Namespace})
	if err != nil {
		return fmt.Errorf("list search attributes: %w", err)
	}
	missing := map[string]enumspb.IndexedValueType{}
	for name, want := range o.SearchAttributes {
		got, ok := have.GetCustomAttributes()[name]
		switch {
		case !ok:
			missing[name] = want
		case got != want:
			return fmt.Errorf("search attribute %q of namespace %q is %s and not %s: rename one of them", name, o.Namespace, got, want)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if _, err := c.AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{Namespace: o.Namespace, SearchAttributes: missing}); err != nil {
		return fmt.Errorf("register search attributes: %w", err)
	}
	return nil
}
