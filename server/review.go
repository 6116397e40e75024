package server

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/internal/resource"
)

// review posts a TokenReview or SubjectAccessReview and returns it answered.
func review[T client.Object](ctx context.Context, t client.Transport, gvr schema.GroupVersionResource, r T) (T, error) {
	var none T
	answer, err := t.Create(ctx, resource.Ref{GroupVersionResource: gvr}, r, metav1.CreateOptions{})
	if err != nil {
		return none, err
	}
	typed, ok := answer.(T)
	if !ok {
		return none, fmt.Errorf("the API server answered a %s with a %T", gvr.Resource, answer)
	}
	return typed, nil
}
