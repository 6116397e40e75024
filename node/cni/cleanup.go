package cni

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"sigs.k8s.io/knftables"
)

// Cleanup removes the bridge, the pod interfaces that are still attached to it,
// the address leases and the configuration file. The pods must be gone.
func Cleanup(c Config) error {
	return errors.Join(
		removeBridge(Bridge(c.ID)),
		os.RemoveAll(c.leaseDir()),
		forget(resultCache, Bridge(c.ID)),
		remove(filepath.Join(c.ConfDir, FileName)),
		removeEmptyPortmap(),
	)
}

// resultCache is where CNI's library, in whatever runtime, remembers what it gave
// to pods. It is one folder for the whole machine, and not configurable.
const resultCache = "/var/lib/cni"

// forget removes what is remembered about one network, and the folders when
// nothing else is.
func forget(cache, network string) error {
	results := filepath.Join(cache, "results")
	files, err := filepath.Glob(filepath.Join(results, network+"-*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range files {
		errs = append(errs, remove(f))
	}
	_, _ = os.Remove(results), os.Remove(cache) // these fail while there is more
	return errors.Join(errs...)
}

func removeBridge(name string) error {
	bridge, err := netlink.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up bridge %s: %w", name, err)
	}
	links, err := netlink.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return fmt.Errorf("list interfaces: %w", err)
	}
	var errs []error
	for _, l := range links {
		if l.Attrs().MasterIndex != bridge.Attrs().Index {
			continue
		}
		if err := netlink.LinkDel(l); err != nil && !errors.As(err, new(netlink.LinkNotFoundError)) {
			errs = append(errs, fmt.Errorf("remove interface %s: %w", l.Attrs().Name, err))
		}
	}
	if err := netlink.LinkDel(bridge); err != nil {
		errs = append(errs, fmt.Errorf("remove bridge %s: %w", name, err))
	}
	return errors.Join(errs...)
}

// portmapTable is the nftables table that the portmap plug-in shares between all
// networks of a machine and never removes; hostportChains hold a rule for each
// forwarded port.
const portmapTable = "cni_hostport"

var hostportChains = []string{"hostports", "hostip_hostports"}

// removeEmptyPortmap removes portmap's tables, unless a port is still forwarded
// for somebody else.
func removeEmptyPortmap() error {
	var errs []error
	for _, family := range []knftables.Family{knftables.IPv4Family, knftables.IPv6Family} {
		if err := removeEmptyTable(family); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func removeEmptyTable(family knftables.Family) error {
	ctx := context.Background()
	nft, err := knftables.New(family, portmapTable)
	if err != nil {
		return nil // without nft nothing can have been forwarded
	}
	for _, chain := range hostportChains {
		rules, err := nft.ListRules(ctx, chain)
		if knftables.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("list forwarded ports: %w", err)
		}
		if len(rules) > 0 {
			return nil
		}
	}
	if _, err := nft.List(ctx, "chains"); err != nil {
		return nil // no such table
	}
	tx := nft.NewTransaction()
	tx.Delete(&knftables.Table{})
	if err := nft.Run(ctx, tx); err != nil && !knftables.IsNotFound(err) {
		return fmt.Errorf("remove table %s: %w", portmapTable, err)
	}
	return nil
}
