package dra

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	drav1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"github.com/yare-project/yare/node/pluginregistry"
)

// callTimeout bounds one call to a driver, as the kubelet does.
const callTimeout = 45 * time.Second

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
	ctx, cancel := context.WithCancel(context.Background())
	d.stop = cancel
	go m.watchHealth(ctx, p.Name, d)
	m.mu.Lock()
	defer m.mu.Unlock()
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

// Close ends the conversations with drivers; what is prepared stays so.
func (m *Manager) Close() {
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

// byDriver sorts claims by the drivers that have to do with them.
func byDriver(list []*claim) (names []string, by map[string][]*claim) {
	by = map[string][]*claim{}
	for _, c := range list {
		for _, name := range c.Drivers {
			by[name] = append(by[name], c)
		}
	}
	for name := range by {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, by
}

func wire(list []*claim) []*drav1.Claim {
	out := make([]*drav1.Claim, len(list))
	for i, c := range list {
		out[i] = &drav1.Claim{Namespace: c.Namespace, Uid: string(c.UID), Name: c.Name}
	}
	return out
}

// prepare asks each driver once for all its claims.
func (m *Manager) prepare(ctx context.Context, list []*claim) error {
	names, by := byDriver(list)
	for _, name := range names {
		if err := m.prepareWith(ctx, name, by[name]); err != nil {
			return err
		}
	}
	m.mu.Lock()
	for _, c := range list {
		c.prepared = true
	}
	m.mu.Unlock()
	if err := m.save(); err != nil {
		return fmt.Errorf("prepared devices: %w", err)
	}
	return nil
}

func (m *Manager) prepareWith(ctx context.Context, name string, list []*claim) error {
	d, err := m.driver(name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer := &drav1.NodePrepareResourcesResponse{}
	if err := d.conn.Invoke(ctx, d.prepare, &drav1.NodePrepareResourcesRequest{Claims: wire(list)}, answer); err != nil {
		return fmt.Errorf("NodePrepareResources: driver %s: %s", name, status.Convert(err).Message())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range list {
		got, ok := answer.Claims[string(c.UID)]
		switch {
		case !ok:
			return fmt.Errorf("NodePrepareResources: driver %s says nothing of ResourceClaim %s", name, c.Name)
		case got.GetError() != "":
			return fmt.Errorf("NodePrepareResources failed for ResourceClaim %s: %s", c.Name, got.GetError())
		}
		c.Devices[name] = nil
		for _, device := range got.GetDevices() {
			c.Devices[name] = append(c.Devices[name], preparation{Pool: device.PoolName, Device: device.DeviceName, Requests: device.RequestNames, CDI: device.CdiDeviceIds})
		}
	}
	return nil
}

// undo has drivers undo claims, and forgets those that all drivers have undone.
func (m *Manager) undo(ctx context.Context, list []*claim) error {
	names, by := byDriver(list)
	m.mu.Lock()
	for _, c := range list {
		c.prepared = false // some drivers may undo it and others fail: whoever comes to use it meanwhile has it prepared anew
	}
	m.mu.Unlock()
	failed := map[*claim]bool{}
	var errs []error
	for _, name := range names {
		for c, err := range m.undoWith(ctx, name, by[name]) {
			failed[c] = true
			errs = append(errs, err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range list {
		if !failed[c] {
			delete(m.claims, c.UID)
		}
	}
	return errors.Join(errs...)
}

func (m *Manager) undoWith(ctx context.Context, name string, list []*claim) map[*claim]error {
	failed := map[*claim]error{}
	all := func(err error) map[*claim]error {
		for _, c := range list {
			failed[c] = err
		}
		return failed
	}
	d, err := m.driver(name)
	if err != nil {
		return all(err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer := &drav1.NodeUnprepareResourcesResponse{}
	if err := d.conn.Invoke(ctx, d.unprepare, &drav1.NodeUnprepareResourcesRequest{Claims: wire(list)}, answer); err != nil {
		return all(fmt.Errorf("NodeUnprepareResources: driver %s: %s", name, status.Convert(err).Message()))
	}
	for _, c := range list {
		got, ok := answer.Claims[string(c.UID)]
		switch {
		case !ok:
			failed[c] = fmt.Errorf("NodeUnprepareResources: driver %s says nothing of ResourceClaim %s", name, c.Name)
		case got.GetError() != "":
			failed[c] = fmt.Errorf("NodeUnprepareResources failed for ResourceClaim %s: %s", c.Name, got.GetError())
		}
	}
	return failed
}

// kept is the file's content.
type kept struct {
	Claims []*claim `json:"claims"`
}

func (m *Manager) load() error {
	body, err := os.ReadFile(m.cfg.File)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var k kept
	if err := json.Unmarshal(body, &k); err != nil {
		return fmt.Errorf("%s: %w", m.cfg.File, err)
	}
	for _, c := range k.Claims {
		if c.Devices == nil {
			c.Devices = map[string][]preparation{}
		}
		m.claims[c.UID] = c
	}
	return nil
}

// save writes the file anew, so that a crash leaves the old or the new one.
func (m *Manager) save() error {
	m.mu.Lock()
	k := kept{Claims: []*claim{}}
	for _, c := range m.claims {
		k.Claims = append(k.Claims, c)
	}
	slices.SortFunc(k.Claims, func(a, b *claim) int { return compare(a, b) })
	body, err := json.Marshal(k)
	m.mu.Unlock()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(m.cfg.File), 0o750); err != nil {
		return err
	}
	return replaceFile(m.cfg.File, body)
}

func compare(a, b *claim) int {
	switch {
	case a.UID < b.UID:
		return -1
	case a.UID > b.UID:
		return 1
	}
	return 0
}

func replaceFile(path string, body []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".devices-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if _, err = f.Write(body); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
