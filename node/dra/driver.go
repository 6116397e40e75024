package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	drav1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"github.com/yare-project/yare/node/pluginregistry"
)

// driver is a registered instance of a driver.
type driver struct {
	plugin pluginregistry.Plugin
	conn   *grpc.ClientConn
	// The two versions of the service have the same messages.
	prepare, unprepare string
	stop               context.CancelFunc // of what follows its devices' health
}

// Register implements pluginregistry.Handler.
func (m *Manager) Register(p pluginregistry.Plugin) error {
	d := &driver{plugin: p}
	switch {
	case slices.Contains(p.Versions, drav1.DRAPluginService):
		d.prepare, d.unprepare = drav1.DRAPlugin_NodePrepareResources_FullMethodName, drav1.DRAPlugin_NodeUnprepareResources_FullMethodName
	case slices.Contains(p.Versions, drav1beta1.DRAPluginService):
		d.prepare, d.unprepare = drav1beta1.DRAPlugin_NodePrepareResources_FullMethodName, drav1beta1.DRAPlugin_NodeUnprepareResources_FullMethodName
	default:
		return fmt.Errorf("none of the supported gRPC services is known here: the plugin has %v, this node %s and %s", p.Versions, drav1.DRAPluginService, drav1beta1.DRAPluginService)
	}
	var err error
	if d.conn, err = pluginregistry.Dial(p.Endpoint); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(m.ctx)
	d.stop = cancel
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() != nil {
		cancel()
		_ = d.conn.Close()
		return errors.New("this node's agent is stopping")
	}
	m.bg.Go(func() { m.watchHealth(ctx, p.Name, d) })
	m.drivers[p.Name] = append(m.drivers[p.Name], d)
	delete(m.lost, p.Name)
	m.cfg.Log.Info("DRA driver registered", "driver", p.Name, "endpoint", p.Endpoint)
	return nil
}

// Unregister implements pluginregistry.Handler.
func (m *Manager) Unregister(p pluginregistry.Plugin) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.drivers[p.Name]
	i := slices.IndexFunc(list, func(d *driver) bool { return d.plugin.Socket == p.Socket && d.plugin.Endpoint == p.Endpoint })
	if i < 0 {
		return
	}
	list[i].stop()
	_ = list[i].conn.Close()
	if list = slices.Delete(list, i, i+1); len(list) == 0 {
		delete(m.drivers, p.Name)
		m.lost[p.Name] = m.cfg.Clock.Now()
		m.cfg.Log.Warn("DRA driver gone", "driver", p.Name)
		return
	}
	m.drivers[p.Name] = list
}

// Close ends the conversations with drivers, and returns when what was done in the background has ended; what is prepared stays so.
func (m *Manager) Close() {
	m.mu.Lock()
	m.cancel()
	m.mu.Unlock()
	m.bg.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, list := range m.drivers {
		for _, d := range list {
			d.stop()
			_ = d.conn.Close()
		}
		delete(m.drivers, name)
	}
}

func (m *Manager) driver(name string) (*driver, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.drivers[name]
	if len(list) == 0 {
		return nil, fmt.Errorf("DRA driver %s is not registered", name)
	}
	return list[len(list)-1], nil
}
