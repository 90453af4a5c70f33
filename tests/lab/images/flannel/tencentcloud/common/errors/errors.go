// Package errors stands in like package common.
package errors

// TencentCloudSDKError is the error that every call of the stand-in gives.
type TencentCloudSDKError struct{}

// Error says why.
func (*TencentCloudSDKError) Error() string { return "this build has no support for Tencent's cloud" }
