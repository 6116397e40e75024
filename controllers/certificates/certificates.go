// Package certificates answers CertificateSigningRequests: it approves those of nodes that join, signs those that were approved, and
// clears away old ones. (Kubernetes: csrapproving, csrsigning, csrcleaner.)
//
// A join token makes new nodes only: a request for the identity of a node that is in the cluster is denied, unless it is the node's own.
//
// Who may get which certificate is decided by pure functions: [Judge] for approval, [usagesFor] for signing. A request that a signer's
// rules refuse is marked Failed with the reason and never signed.
//
// Signers: kubernetes.io/kube-apiserver-client, kubernetes.io/kube-apiserver-client-kubelet, kubernetes.io/kubelet-serving.
// Requests for other signers are left to their owners. Source: Kubernetes documentation, "Certificates and Certificate Signing Requests".
package certificates

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/internal/resource"
	"github.com/yare-project/yare/loop"
)

// Signer signs what was approved; *pki.Authority is one.
type Signer interface {
	SignRequest(csr *x509.CertificateRequest, usages x509.KeyUsage, extended []x509.ExtKeyUsage, life time.Duration) ([]byte, error)
}

// Config of the loop.
type Config struct {
	Signer Signer
	// MaxLife bounds every certificate; zero means a year. A request may ask for less, not below 10 minutes.
	MaxLife time.Duration
}

// minLife is the shortest life that a request may ask for (API documentation of spec.expirationSeconds).
const minLife = 10 * time.Minute

var gvr = certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests")

// Descriptor declares the loop.
func Descriptor(c Config) loop.Descriptor {
	if c.MaxLife == 0 {
		c.MaxLife = 365 * 24 * time.Hour
	}
	group := func(sub string) schema.GroupResource {
		return schema.GroupResource{Group: certificatesv1.GroupName, Resource: "certificatesigningrequests" + sub}
	}
	signers := schema.GroupResource{Group: certificatesv1.GroupName, Resource: "signers"}
	return loop.Descriptor{
		Name:  "certificates",
		Reads: []loop.Access{{GroupResource: group("")}, {GroupResource: corev1.Resource("nodes")}},
		Writes: []loop.Access{
			{GroupResource: group("/approval"), Verbs: []string{"update"}},
			{GroupResource: group("/status"), Verbs: []string{"update"}},
			{GroupResource: group(""), Verbs: []string{"delete"}},
			{GroupResource: signers, Verbs: []string{"approve", "sign"}},
			{GroupResource: schema.GroupResource{Group: authorizationv1.GroupName, Resource: "subjectaccessreviews"}, Verbs: []string{"create"}},
		},
		Start: func(in loop.Inputs) (loop.Reconcile, error) { return start(in, c), nil },
	}
}

type controller struct {
	Config
	in       loop.Inputs
	requests client.Cache[*certificatesv1.CertificateSigningRequest]
	nodes    client.Cache[*corev1.Node]
	api      client.API[*certificatesv1.CertificateSigningRequest]
}

func start(in loop.Inputs, config Config) loop.Reconcile {
	c := &controller{Config: config, in: in,
		requests: client.CacheOf[*certificatesv1.CertificateSigningRequest](in.Caches, client.CacheOptions{}),
		nodes:    client.CacheOf[*corev1.Node](in.Caches, client.CacheOptions{}),
		api:      client.Of[*certificatesv1.CertificateSigningRequest](in.Transport),
	}
	c.requests.OnChange(func(_, csr *certificatesv1.CertificateSigningRequest) {
		if csr != nil {
			in.Enqueue(loop.Key{Name: csr.Name})
		}
	})
	// A node may ask for its serving certificate before this loop has heard of its addresses: then the request is judged again.
	c.nodes.OnChange(func(old, node *corev1.Node) {
		if node == nil || old != nil && slices.Equal(old.Status.Addresses, node.Status.Addresses) {
			return
		}
		for _, csr := range c.requests.List("") {
			if len(csr.Status.Conditions) == 0 && csr.Spec.Username == nodePrefix+node.Name {
				in.Enqueue(loop.Key{Name: csr.Name})
			}
		}
	})
	return c.reconcile
}

func (c *controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	csr, ok := c.requests.Get("", key.Name)
	if !ok {
		return loop.Result{}, nil
	}
	wait := keep(csr, c.in.Clock.Now())
	if wait <= 0 {
		err := c.api.Delete(ctx, "", csr.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(csr.UID))})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			err = nil
		}
		return loop.Result{}, err
	}
	var err error
	switch {
	case has(csr, certificatesv1.CertificateDenied) || has(csr, certificatesv1.CertificateFailed) || len(csr.Status.Certificate) > 0:
	case has(csr, certificatesv1.CertificateApproved):
		err = c.sign(ctx, csr)
	default:
		err = c.approve(ctx, csr)
	}
	if wait == forever {
		wait = 0
	}
	return loop.Result{After: wait}, err
}

func has(csr *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) bool {
	return condition(csr, kind) != nil
}

func condition(csr *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequestCondition {
	for i := range csr.Status.Conditions {
		if csr.Status.Conditions[i].Type == kind {
			return &csr.Status.Conditions[i]
		}
	}
	return nil
}

// forever is how long a request is kept that waits for a signer of somebody else: no clock of this loop's ends that.
const forever = time.Duration(1<<63 - 1)

// keep says for how much longer a request is kept: an hour once it was denied, failed, or approved and signed; a day while nobody has answered; and
// not beyond its certificate (Kubernetes: csrcleaner).
func keep(csr *certificatesv1.CertificateSigningRequest, now time.Time) time.Duration {
	const answered, pending = time.Hour, 24 * time.Hour
	if len(csr.Status.Conditions) == 0 {
		return csr.CreationTimestamp.Add(pending).Sub(now)
	}
	left := forever
	for i := range csr.Status.Conditions {
		c := &csr.Status.Conditions[i]
		if c.Type == certificatesv1.CertificateApproved && len(csr.Status.Certificate) == 0 {
			continue // its signer may be somebody's who takes time
		}
		at := c.LastUpdateTime.Time
		if at.IsZero() {
			at = csr.CreationTimestamp.Time
		}
		left = min(left, at.Add(answered).Sub(now))
	}
	if end, ok := ends(csr.Status.Certificate); ok {
		left = min(left, end.Sub(now))
	}
	return left
}

// ends is when the first certificate of a chain does.
func ends(chain []byte) (time.Time, bool) {
	block, _ := pem.Decode(chain)
	if block == nil || block.Type != "CERTIFICATE" {
		return time.Time{}, false
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, false
	}
	return certificate.NotAfter, true
}

func (c *controller) approve(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) error {
	request, err := parse(csr)
	if err != nil {
		return nil // validation at the gate refuses such requests; one that got by is left to a person
	}
	node, _ := c.nodes.Get("", nodeName(request))
	verdict := Judge(csr, request, node)
	if verdict.Subresource == "" && !verdict.Approve {
		return nil
	}
	if verdict.Subresource != "" {
		allowed, err := c.allowed(ctx, csr, verdict.Subresource)
		if err != nil || !allowed {
			return err
		}
	}
	answer := certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AutoApproved", Message: verdict.Message,
		LastUpdateTime: metav1.NewTime(c.in.Clock.Now()),
	}
	if verdict.Deny != "" {
		answer.Type, answer.Reason, answer.Message = certificatesv1.CertificateDenied, "NodeExists", verdict.Deny
	}
	csr = csr.DeepCopy()
	csr.Status.Conditions = append(csr.Status.Conditions, answer)
	_, err = c.in.Transport.Update(ctx, resource.Ref{GroupVersionResource: gvr, Name: csr.Name, Subresource: "approval"}, csr, metav1.UpdateOptions{})
	return err
}

// allowed asks whether the requester may have such a certificate without a person's approval.
func (c *controller) allowed(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, sub string) (bool, error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for k, v := range csr.Spec.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: csr.Spec.Username, UID: csr.Spec.UID, Groups: csr.Spec.Groups, Extra: extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: certificatesv1.GroupName, Version: "*", Resource: "certificatesigningrequests", Verb: "create", Subresource: sub,
		},
	}}
	ref := resource.Ref{GroupVersionResource: authorizationv1.SchemeGroupVersion.WithResource("subjectaccessreviews")}
	answer, err := c.in.Transport.Create(ctx, ref, review, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	got, ok := answer.(*authorizationv1.SubjectAccessReview)
	return ok && got.Status.Allowed, nil
}

func (c *controller) sign(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) error {
	request, err := parse(csr)
	if err != nil {
		return c.fail(ctx, csr, err)
	}
	usages, extended, err := usagesFor(csr, request)
	if errors.Is(err, errOthers) {
		return nil
	}
	if err != nil {
		return c.fail(ctx, csr, err)
	}
	certificate, err := c.Signer.SignRequest(request, usages, extended, life(csr, c.MaxLife))
	if err != nil {
		return c.fail(ctx, csr, err)
	}
	csr = csr.DeepCopy()
	csr.Status.Certificate = certificate
	_, err = c.api.UpdateStatus(ctx, csr)
	return err
}

func life(csr *certificatesv1.CertificateSigningRequest, most time.Duration) time.Duration {
	if csr.Spec.ExpirationSeconds == nil {
		return most
	}
	return min(most, max(minLife, time.Duration(*csr.Spec.ExpirationSeconds)*time.Second))
}

func (c *controller) fail(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, why error) error {
	c.in.Event(csr, corev1.EventTypeWarning, "SignerValidationFailure", why.Error())
	csr = csr.DeepCopy()
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "SignerValidationFailure", Message: why.Error(),
		LastUpdateTime: metav1.NewTime(c.in.Clock.Now()),
	})
	_, err := c.api.UpdateStatus(ctx, csr)
	return err
}

func parse(csr *certificatesv1.CertificateSigningRequest) (*x509.CertificateRequest, error) {
	block, rest := pem.Decode(csr.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(rest) > 0 {
		return nil, errors.New("spec.request is not one PEM block of type CERTIFICATE REQUEST")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("spec.request: %w", err)
	}
	return request, nil
}
