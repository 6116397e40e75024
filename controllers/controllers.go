// Package controllers is the list of the loops that make a cluster of an API server: one folder each, every one a declaration, a pure decision and a
// thin shell. It builds nothing else; package loop runs them.
package controllers

import (
	"github.com/yare-project/yare/controllers/bootstrap"
	"github.com/yare-project/yare/controllers/certificates"
	"github.com/yare-project/yare/controllers/cronjob"
	"github.com/yare-project/yare/controllers/daemonset"
	"github.com/yare-project/yare/controllers/deployment"
	"github.com/yare-project/yare/controllers/devicetainteviction"
	"github.com/yare-project/yare/controllers/disruption"
	"github.com/yare-project/yare/controllers/endpointmirror"
	"github.com/yare-project/yare/controllers/endpoints"
	"github.com/yare-project/yare/controllers/endpointslice"
	"github.com/yare-project/yare/controllers/ephemeralvolume"
	"github.com/yare-project/yare/controllers/garbagecollector"
	"github.com/yare-project/yare/controllers/job"
	"github.com/yare-project/yare/controllers/namespace"
	"github.com/yare-project/yare/controllers/nodeipam"
	"github.com/yare-project/yare/controllers/nodelifecycle"
	"github.com/yare-project/yare/controllers/persistentvolume"
	"github.com/yare-project/yare/controllers/podgc"
	"github.com/yare-project/yare/controllers/podgroupprotection"
	"github.com/yare-project/yare/controllers/replicaset"
	"github.com/yare-project/yare/controllers/resourceclaim"
	"github.com/yare-project/yare/controllers/resourcequota"
	"github.com/yare-project/yare/controllers/rootca"
	"github.com/yare-project/yare/controllers/served"
	"github.com/yare-project/yare/controllers/serviceaccount"
	"github.com/yare-project/yare/controllers/serviceaccounttoken"
	"github.com/yare-project/yare/controllers/servicecidr"
	"github.com/yare-project/yare/controllers/statefulset"
	"github.com/yare-project/yare/controllers/tainteviction"
	"github.com/yare-project/yare/controllers/ttl"
	"github.com/yare-project/yare/controllers/volumeexpansion"
	"github.com/yare-project/yare/controllers/volumeprotection"
	"github.com/yare-project/yare/internal/quota"
	"github.com/yare-project/yare/loop"
)

// Config is what the loops need beyond what the runtime gives them.
type Config struct {
	// CA is the PEM of the authority by which pods know the API server.
	CA []byte
	// Served lists what the API server serves.
	Served served.List
	// Signer signs the certificates that nodes ask for; nil leaves their requests to somebody else.
	Signer certificates.Signer
	// SignSecret makes a service account's token for a Secret; nil leaves such Secrets empty.
	SignSecret func(namespace, account, accountUID, secret string) (string, error)
	// NodeIPAM hands out pod ranges to nodes; nil leaves that to somebody else.
	NodeIPAM *nodeipam.Config
	// NodeLifecycle are its times and rates; zero values are defaults.
	NodeLifecycle nodelifecycle.Config
	// FinishedPods is how many finished pods may stay; 0 is podgc.DefaultThreshold, below 0 all.
	FinishedPods int
	// Quota is the ledger of the admission plugin that charges quotas; nil means one of its own, which is right where admission runs elsewhere.
	Quota *quota.Ledger
}

// All lists every loop.
func All(c Config) []loop.Descriptor {
	all := []loop.Descriptor{
		namespace.Descriptor(c.Served),
		garbagecollector.Descriptor(c.Served),
		serviceaccount.Descriptor(),
		rootca.Descriptor(c.CA),
		deployment.Descriptor(),
		replicaset.Descriptor(),
		replicaset.ReplicationDescriptor(),
		statefulset.Descriptor(),
		daemonset.Descriptor(),
		job.Descriptor(),
		cronjob.Descriptor(),
		ttl.Descriptor(),
		disruption.Descriptor(),
		endpointslice.Descriptor(),
		endpoints.Descriptor(),
		endpointmirror.Descriptor(),
		nodelifecycle.Descriptor(c.NodeLifecycle),
		tainteviction.Descriptor(),
		devicetainteviction.Descriptor(),
		podgc.Descriptor(c.FinishedPods),
		podgroupprotection.Descriptor(),
		resourceclaim.Descriptor(),
		resourcequota.Descriptor(c.Served, c.Quota),
		persistentvolume.Descriptor(),
		volumeprotection.Descriptor(),
		ephemeralvolume.Descriptor(),
		volumeexpansion.Descriptor(),
		servicecidr.Descriptor(),
	}
	all = append(all, bootstrap.CleanerDescriptor(), bootstrap.SignerDescriptor(), serviceaccounttoken.CleanerDescriptor())
	if c.SignSecret != nil {
		all = append(all, serviceaccounttoken.Descriptor(serviceaccounttoken.Config{CA: c.CA, Sign: c.SignSecret}))
	}
	if c.Signer != nil {
		all = append(all, certificates.Descriptor(certificates.Config{Signer: c.Signer}))
	}
	if c.NodeIPAM != nil {
		all = append(all, nodeipam.Descriptor(*c.NodeIPAM))
	}
	return all
}
