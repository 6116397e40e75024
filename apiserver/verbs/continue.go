package verbs

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/store"
)

// continueToken says where a list goes on. Its form is that of Kubernetes' own tokens.
type continueToken struct {
	APIVersion string `json:"v"`
	// Revision is of the snapshot that the list reads; -1 accepts an inconsistent rest from the newest state.
	Revision int64  `json:"rv"`
	Start    string `json:"start"`
	// Began is when the list's first page was read, in seconds since 1970.
	Began int64 `json:"began,omitempty"`
}

const (
	continueVersion = "meta.k8s.io/v1"
	// continueLife is how long a list may take from its first page to its last: Kubernetes' etcd compaction interval. What changed since is kept
	// by size, not by time, and would do for longer; but clients rely on old tokens to expire.
	continueLife = 5 * time.Minute
)

// after makes the token for the rest of a list that ended with key; prefix is the collection's.
func after(prefix, key string, rev store.Revision, began time.Time) string {
	return continueToken{continueVersion, int64(rev), strings.TrimPrefix(key, prefix) + "\x00", began.Unix()}.encode()
}

// old tells a token whose list began too long ago.
func (t continueToken) old(now time.Time) bool {
	return t.Revision > 0 && now.Sub(t.began(now)) > continueLife
}

func (t continueToken) began(now time.Time) time.Time {
	if t.Began == 0 || t.Revision < 0 {
		return now // a rest that is read from the newest state begins anew
	}
	return time.Unix(t.Began, 0)
}

func (t continueToken) encode() string {
	data, err := json.Marshal(t)
	if err != nil {
		panic(err) // three scalar fields always marshal
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

func decodeContinue(s string) (continueToken, error) {
	var t continueToken
	data, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	switch {
	case err != nil:
		return t, apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: continue key is not valid: %v", err))
	case t.APIVersion != continueVersion:
		return t, apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: continue key is not valid: server does not recognize this encoded version %q", t.APIVersion))
	case t.Start == "" || t.Revision == 0 || t.Revision < -1:
		return t, apierrors.NewBadRequest("invalid continue token: continue key is not valid: it lacks a position or a resource version")
	}
	return t, nil
}

// expired tells the client that its snapshot has gone, with a token that goes on from the newest state.
func (t continueToken) expired() error {
	t.Revision = -1
	e := apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. Start the list again without it, " +
		"or use the continue token in this response to get the rest from the newest state, which may not fit what was read before.")
	e.ErrStatus.ListMeta.Continue = t.encode()
	return e
}

// tooLarge says that a client asks for a resource version that this server has not reached.
func tooLarge(want, have store.Revision) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGatewayTimeout, Reason: metav1.StatusReasonTimeout,
		Message: fmt.Sprintf("Timeout: Too large resource version: %d, current: %d", want, have),
		Details: &metav1.StatusDetails{RetryAfterSeconds: 1, Causes: []metav1.StatusCause{{
			Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}}}}
}
