// Package fake is a DRA driver for tests: it registers with a node agent and prepares claims over real sockets, and remembers what it was asked.
package fake

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync"

	"google.golang.org/grpc"
	healthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	drav1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Driver is a running driver. Make one with Start.
type Driver struct {
	drav1.UnimplementedDRAPluginServer
	healthv1alpha1.UnimplementedDRAResourceHealthServer
	registerapi.UnsafeRegistrationServer

	name     string
	socket   string
	versions []string
	devices  func(claim *drav1.Claim) []*drav1.Device
	server   *grpc.Server
	notified chan *registerapi.RegistrationStatus

	mu       sync.Mutex
	prepared map[string]bool // by claim uid
	calls    []string
	fault    string
	faults   map[string]string // by claim name
	held     chan struct{}     // nil: calls are answered at once
	asked    chan struct{}     // closed at the next call
	health   []*healthv1alpha1.DeviceHealth
	changed  chan struct{} // closed at the next change of health
}

// Options are what a driver may do otherwise than most.
type Options struct {
	// Versions are the services that it says it serves; default v1. Of v1 and v1beta1 it serves those that are named.
	Versions []string
	// Socket is its name in the folder; default NAME-reg.sock.
	Socket string
	// Silent drivers have no service for the health of devices.
	Silent bool
}

// Start serves a driver of a name by a socket in dir, which a node agent watches. devices says what a claim is given.
func Start(dir, name string, devices func(claim *drav1.Claim) []*drav1.Device) (*Driver, error) {
	return StartWith(dir, name, devices, Options{})
}

// StartWith is Start with options.
func StartWith(dir, name string, devices func(claim *drav1.Claim) []*drav1.Device, o Options) (*Driver, error) {
	if o.Socket == "" {
		o.Socket = name + "-reg.sock"
	}
	if o.Versions == nil {
		o.Versions = []string{drav1.DRAPluginService}
	}
	d := &Driver{name: name, socket: filepath.Join(dir, o.Socket), versions: o.Versions, devices: devices, server: grpc.NewServer(), prepared: map[string]bool{},
		notified: make(chan *registerapi.RegistrationStatus, 16), changed: make(chan struct{}), faults: map[string]string{}, asked: make(chan struct{})}
	listener, err := net.Listen("unix", d.socket)
	if err != nil {
		return nil, err
	}
	registerapi.RegisterRegistrationServer(d.server, d)
	if slices.Contains(o.Versions, drav1.DRAPluginService) {
		drav1.RegisterDRAPluginServer(d.server, d)
	}
	if slices.Contains(o.Versions, drav1beta1.DRAPluginService) {
		drav1beta1.RegisterDRAPluginServer(d.server, drav1beta1.V1ServerWrapper{DRAPluginServer: d})
	}
	if !o.Silent {
		healthv1alpha1.RegisterDRAResourceHealthServer(d.server, d)
	}
	go func() { _ = d.server.Serve(listener) }()
	return d, nil
}

// Socket is where the driver is reached.
func (d *Driver) Socket() string { return d.socket }

// Stop ends the driver; its socket goes.
func (d *Driver) Stop() { d.server.Stop() }

// Registered hears each time that a node agent says how the registration went.
func (d *Driver) Registered() <-chan *registerapi.RegistrationStatus { return d.notified }

// Fail makes the driver refuse to prepare and unprepare with an error; empty ends that.
func (d *Driver) Fail(fault string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = fault
}

// FailClaim makes the driver refuse one claim by name; empty ends that.
func (d *Driver) FailClaim(claim, fault string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults[claim] = fault
}

// Hang makes the driver answer nothing until release is called, or the caller gives up.
func (d *Driver) Hang() (release func()) {
	held := make(chan struct{})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held = held
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.held == held {
			d.held = nil
			close(held)
		}
	}
}

// hear writes down what was asked, and waits while the driver hangs.
func (d *Driver) hear(ctx context.Context, verb string, claims []*drav1.Claim) error {
	d.mu.Lock()
	for _, c := range claims {
		d.calls = append(d.calls, fmt.Sprintf("%s %s/%s", verb, c.Namespace, c.Name))
	}
	close(d.asked)
	d.asked = make(chan struct{})
	held := d.held
	d.mu.Unlock()
	if held == nil {
		return nil
	}
	select {
	case <-held:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// faultFor is why a claim is refused; empty: it is not. d.mu is held.
func (d *Driver) faultFor(claim string) string {
	if f := d.faults[claim]; f != "" {
		return f
	}
	return d.fault
}

// Await waits until the driver was asked something that Calls has, as "prepare default/claim".
func (d *Driver) Await(ctx context.Context, call string) error {
	for {
		d.mu.Lock()
		known, asked := slices.Contains(d.calls, call), d.asked
		d.mu.Unlock()
		if known {
			return nil
		}
		select {
		case <-asked:
		case <-ctx.Done():
			return fmt.Errorf("driver %s was not asked to %s: it was asked %v", d.name, call, d.Calls())
		}
	}
}

// Tell says of a device how it is.
func (d *Driver) Tell(pool, device string, health healthv1alpha1.HealthStatus, message string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.health = []*healthv1alpha1.DeviceHealth{{Device: &healthv1alpha1.DeviceIdentifier{PoolName: pool, DeviceName: device}, Health: health, Message: message}}
	close(d.changed)
	d.changed = make(chan struct{})
}

// NodeWatchResources implements healthv1alpha1.DRAResourceHealthServer.
func (d *Driver) NodeWatchResources(_ *healthv1alpha1.NodeWatchResourcesRequest, s healthv1alpha1.DRAResourceHealth_NodeWatchResourcesServer) error {
	for {
		d.mu.Lock()
		health, changed := d.health, d.changed
		d.mu.Unlock()
		if err := s.Send(&healthv1alpha1.NodeWatchResourcesResponse{Devices: health}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-s.Context().Done():
			return nil
		}
	}
}

// Prepared lists the uids of the claims that are prepared.
func (d *Driver) Prepared() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := []string{}
	for uid := range d.prepared {
		out = append(out, uid)
	}
	slices.Sort(out)
	return out
}

// Calls lists what was asked, such as "prepare default/claim".
func (d *Driver) Calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

// GetInfo implements registerapi.RegistrationServer.
func (d *Driver) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{Type: registerapi.DRAPlugin, Name: d.name, SupportedVersions: d.versions}, nil
}

// NotifyRegistrationStatus implements registerapi.RegistrationServer.
func (d *Driver) NotifyRegistrationStatus(_ context.Context, s *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	select {
	case d.notified <- s:
	default:
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}

// NodePrepareResources implements drav1.DRAPluginServer.
func (d *Driver) NodePrepareResources(ctx context.Context, r *drav1.NodePrepareResourcesRequest) (*drav1.NodePrepareResourcesResponse, error) {
	if err := d.hear(ctx, "prepare", r.Claims); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	out := &drav1.NodePrepareResourcesResponse{Claims: map[string]*drav1.NodePrepareResourceResponse{}}
	for _, c := range r.Claims {
		if fault := d.faultFor(c.Name); fault != "" {
			out.Claims[c.Uid] = &drav1.NodePrepareResourceResponse{Error: fault}
			continue
		}
		d.prepared[c.Uid] = true
		out.Claims[c.Uid] = &drav1.NodePrepareResourceResponse{Devices: d.devices(c)}
	}
	return out, nil
}

// NodeUnprepareResources implements drav1.DRAPluginServer.
func (d *Driver) NodeUnprepareResources(ctx context.Context, r *drav1.NodeUnprepareResourcesRequest) (*drav1.NodeUnprepareResourcesResponse, error) {
	if err := d.hear(ctx, "unprepare", r.Claims); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	out := &drav1.NodeUnprepareResourcesResponse{Claims: map[string]*drav1.NodeUnprepareResourceResponse{}}
	for _, c := range r.Claims {
		if fault := d.faultFor(c.Name); fault != "" {
			out.Claims[c.Uid] = &drav1.NodeUnprepareResourceResponse{Error: fault}
			continue
		}
		delete(d.prepared, c.Uid)
		out.Claims[c.Uid] = &drav1.NodeUnprepareResourceResponse{}
	}
	return out, nil
}
