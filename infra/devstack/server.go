package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	uiserver "github.com/temporalio/ui-server/v2/server"
	uiconfig "github.com/temporalio/ui-server/v2/server/config"
	uioptions "github.com/temporalio/ui-server/v2/server/server_options"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/metrics"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/temporal"
)

// logLevels maps --log-level to the server's names for it.
var logLevels = map[string]string{"debug": "debug", "info": "info", "warn": "warn", "error": "error", "never": ""}

// server is a running Temporal server with its UI.
type server struct {
	address, uiAddress string
	temporal           temporal.Server
	ui                 *uiserver.Server // nil when headless
	db                 *database
}

// startServer starts Temporal's four services and the UI in this process. It
// returns when the frontend accepts connections.
func startServer(o options) (*server, error) {
	// Both servers report a taken port late, one of them by ending the process.
	ports := []int{o.port}
	if !o.headless {
		if err := portFree(o.uiIP, o.uiPort); err != nil {
			return nil, fmt.Errorf("web UI: %w", err)
		}
	}
	if o.httpPort > 0 {
		ports = append(ports, o.httpPort)
	}
	if o.metricsPort > 0 {
		ports = append(ports, o.metricsPort)
	}
	for _, p := range ports {
		if err := portFree(o.ip, p); err != nil {
			return nil, err
		}
	}
	db, err := openDatabase(o)
	if err != nil {
		return nil, err
	}
	s := &server{address: hostPort(o.ip, o.port), db: db}
	if err := s.start(o); err != nil {
		db.close()
		return nil, err
	}
	return s, nil
}

func (s *server) start(o options) error {
	c, err := serverConfig(o, s.db)
	if err != nil {
		return err
	}
	authorizer, err := authorization.GetAuthorizerFromConfig(&c.Global.Authorization)
	if err != nil {
		return fmt.Errorf("authorizer: %w", err)
	}
	hosts := map[primitives.ServiceName]static.Hosts{}
	for _, name := range []primitives.ServiceName{primitives.FrontendService, primitives.HistoryService, primitives.MatchingService, primitives.WorkerService} {
		hosts[name] = static.SingleLocalHost(hostPort(dialIP(o.ip), c.Services[string(name)].RPC.GRPCPort))
	}
	s.temporal, err = temporal.NewServer(
		temporal.WithConfig(c),
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithStaticHosts(hosts),
		temporal.WithLogger(newLogger(o)),
		temporal.WithAuthorizer(authorizer),
		temporal.WithDynamicConfigClient(dynamicConfig(o)),
	)
	if err != nil {
		return fmt.Errorf("configure the Temporal server: %w", err)
	}
	if err := s.temporal.Start(); err != nil {
		return fmt.Errorf("start the Temporal server: %w", err)
	}
	if o.headless {
		return nil
	}
	s.uiAddress = hostPort(o.uiIP, o.uiPort)
	s.ui = uiserver.NewServer(uioptions.WithConfigProvider(&uiconfig.Config{
		Host:                o.uiIP,
		Port:                o.uiPort,
		TemporalGRPCAddress: c.PublicClient.HostPort,
		EnableUI:            true,
		HideLogs:            true,
		// The UI is served over plain HTTP, where a secure cookie is never sent back.
		CORS: uiconfig.CORS{CookieInsecure: true},
		// Nothing outside the machine is asked for anything.
		DisableNewsFetch: true,
	}))
	go func() {
		// Start ends the process itself when it cannot listen, and otherwise
		// returns nil once Stop is called.
		_ = s.ui.Start()
	}()
	return nil
}

func (s *server) stop() error {
	defer s.db.close()
	if s.ui != nil {
		s.ui.Stop()
	}
	if err := s.temporal.Stop(); err != nil {
		return fmt.Errorf("stop the Temporal server: %w", err)
	}
	return nil
}

func serverConfig(o options, db *database) (*config.Config, error) {
	var c config.Config
	c.Services = map[string]config.Service{}
	httpPort := o.httpPort
	for _, name := range temporal.DefaultServices {
		var s config.Service
		s.RPC.BindOnIP = o.ip
		if name == string(primitives.FrontendService) {
			if httpPort == 0 {
				p, err := freePort(o.ip)
				if err != nil {
					return nil, err
				}
				httpPort = p
			}
			s.RPC.GRPCPort, s.RPC.HTTPPort = o.port, httpPort
		} else {
			p, err := freePort(o.ip)
			if err != nil {
				return nil, err
			}
			s.RPC.GRPCPort = p
		}
		c.Services[name] = s
	}
	c.Global.Membership.MaxJoinDuration = 30 * time.Second
	c.Global.Membership.BroadcastAddress = dialIP(o.ip)
	if o.metricsPort > 0 {
		c.Global.Metrics = &metrics.Config{Prometheus: &metrics.PrometheusConfig{
			ListenAddress: hostPort(o.ip, o.metricsPort), HandlerPath: "/metrics",
		}}
	}
	const store = "sqlite"
	c.Persistence = config.Persistence{
		DefaultStore: store, VisibilityStore: store, NumHistoryShards: 1,
		DataStores: map[string]config.DataStore{store: {SQL: db.sql}},
	}
	frontend := hostPort(dialIP(o.ip), o.port)
	c.ClusterMetadata = &cluster.Config{
		FailoverVersionIncrement: 10, MasterClusterName: clusterName, CurrentClusterName: clusterName,
		ClusterInformation: map[string]cluster.ClusterInformation{clusterName: {
			Enabled: true, InitialFailoverVersion: 1, ClusterID: db.clusterID,
			RPCAddress: frontend, HTTPAddress: hostPort(dialIP(o.ip), httpPort),
		}},
	}
	c.DCRedirectionPolicy.Policy = "noop"
	c.Archival.History.State, c.Archival.Visibility.State = "disabled", "disabled"
	c.NamespaceDefaults.Archival.History.State, c.NamespaceDefaults.Archival.Visibility.State = "disabled", "disabled"
	c.PublicClient.HostPort = frontend
	return &c, nil
}

// dynamicConfig returns the settings the user gave over ours. The poll rates
// are what makes a development server quick: by default each queue of its one
// shard is polled 20 times a second, which puts 50 ms between any two steps of
// a workflow.
func dynamicConfig(o options) dynamicconfig.StaticClient {
	dyn := dynamicconfig.StaticClient{
		dynamicconfig.HistoryCacheHostLevelMaxSize.Key():                 8096,
		dynamicconfig.FrontendMaxNamespaceVisibilityRPSPerInstance.Key(): 100,
		dynamicconfig.TransferProcessorMaxPollRPS.Key():                  1000,
		dynamicconfig.TimerProcessorMaxPollRPS.Key():                     1000,
		dynamicconfig.VisibilityProcessorMaxPollRPS.Key():                1000,
	}
	for k, v := range o.dynamic {
		dyn[dynamicconfig.MakeKey(k)] = v
	}
	return dyn
}

func newLogger(o options) log.Logger {
	level := logLevels[o.logLevel]
	if level == "" {
		return log.NewNoopLogger()
	}
	format := "console"
	if o.logFormat == "json" {
		format = "json"
	}
	return log.NewZapLogger(log.BuildZapLogger(log.Config{Level: level, Format: format})) // to stderr
}

// dialIP returns the address at which this machine reaches a listener on ip.
func dialIP(ip string) string {
	if p := net.ParseIP(ip); p != nil && p.IsUnspecified() {
		return "127.0.0.1"
	}
	return ip
}

func hostPort(ip string, port int) string { return net.JoinHostPort(ip, strconv.Itoa(port)) }

// freePort returns a port that nobody uses and that the system will not hand
// out for a minute: a connection is accepted on it and closed from this side,
// which leaves the port in TIME_WAIT. Explicit listeners may still take it. Two
// servers that start together would otherwise be given each other's ports.
func freePort(ip string) (int, error) {
	port, err := reservePort(ip)
	if err != nil {
		return 0, fmt.Errorf("find a free port on %s: %w", ip, err)
	}
	return port, nil
}

func reservePort(ip string) (int, error) {
	l, err := net.Listen("tcp", hostPort(ip, 0))
	if err != nil {
		return 0, err
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	dialed, err := net.Dial("tcp", hostPort(dialIP(ip), port))
	if err != nil {
		return 0, err
	}
	defer dialed.Close()
	accepted, err := l.Accept()
	if err != nil {
		return 0, err
	}
	return port, accepted.Close()
}

func portFree(ip string, port int) error {
	l, err := net.Listen("tcp", hostPort(ip, port))
	if err != nil {
		return errors.Join(fmt.Errorf("port %d of %s is taken or not allowed: name another", port, ip), err)
	}
	return l.Close()
}
