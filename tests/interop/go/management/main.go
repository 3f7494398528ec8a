// rabbit-hole, RabbitMQ's management client, driven by lines of JSON: each answer is what the library decoded.
package main

import (
	"fmt"
	"net/url"

	"headgate/interop/lines"

	rabbithole "github.com/michaelklishin/rabbit-hole/v3"
)

var client *rabbithole.Client

func connect(command *lines.Command) (any, error) {
	var err error
	client, err = rabbithole.NewClient(
		fmt.Sprintf("http://%s:%d", command.Host, command.Port), command.User, command.Password)
	return nil, err
}

// told makes a handler of a question that takes no argument.
func told[T any](ask func() (T, error)) lines.Handler {
	return func(*lines.Command) (any, error) { return ask() }
}

func main() {
	lines.Serve(map[string]lines.Handler{
		"connect":     connect,
		"overview":    told(func() (*rabbithole.Overview, error) { return client.Overview() }),
		"cluster":     told(func() (*rabbithole.ClusterName, error) { return client.GetClusterName() }),
		"whoami":      told(func() (*rabbithole.WhoamiInfo, error) { return client.Whoami() }),
		"nodes":       told(func() ([]rabbithole.NodeInfo, error) { return client.ListNodes() }),
		"vhosts":      told(func() ([]rabbithole.VhostInfo, error) { return client.ListVhosts() }),
		"connections": told(func() ([]rabbithole.ConnectionInfo, error) { return client.ListConnections() }),
		"consumers":   told(func() ([]rabbithole.ConsumerInfo, error) { return client.ListConsumersIn("/") }),
		"exchanges":   told(func() ([]rabbithole.ExchangeInfo, error) { return client.ListExchangesIn("/") }),
		"bindings":    told(func() ([]rabbithole.BindingInfo, error) { return client.ListBindingsIn("/") }),
		"users":       told(func() ([]rabbithole.UserInfo, error) { return client.ListUsers() }),
		"queues":      told(func() ([]rabbithole.QueueInfo, error) { return client.ListQueuesIn("/") }),
		"node":        func(command *lines.Command) (any, error) { return client.GetNode(command.Name) },
		"exchange":    func(command *lines.Command) (any, error) { return client.GetExchange("/", command.Name) },
		"queue":       func(command *lines.Command) (any, error) { return client.GetQueue("/", command.Name) },
		"page": func(command *lines.Command) (any, error) {
			query := url.Values{"page": {"1"}, "page_size": {"1"}, "name": {command.Name}, "use_regex": {"true"}}
			return client.PagedListQueuesWithParametersIn("/", query)
		},
		"alarms":        told(func() (rabbithole.ResourceAlarmCheckStatus, error) { return client.HealthCheckAlarms() }),
		"virtual_hosts": told(func() (rabbithole.HealthCheckStatus, error) { return client.HealthCheckVirtualHosts() }),
		"critical":      told(func() (rabbithole.HealthCheckStatus, error) { return client.HealthCheckNodeIsQuorumCritical() }),
		"port":          func(command *lines.Command) (any, error) { return client.HealthCheckPortListener(uint(command.Port)) },
		"protocol": func(command *lines.Command) (any, error) {
			return client.HealthCheckProtocolListener(rabbithole.Protocol(command.Name))
		},
	})
}
