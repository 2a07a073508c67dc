"""Google Drive API calls for listing and authentication, made with Google's client library."""

import http.client
import json
from pathlib import Path
from typing import Any

from quire.errors import FetchFailed, SourceRefused, install_hint
from quire.fetch.http_client import RetryableError
from quire.fetch.items import PAGE_ITEMS, SourceOptions
from quire.fetch.network import require_allowed
from quire.fetch.transfer.download import failure
from quire.fetch.transfer.retry import RetryBudget

_ENDPOINT = "https://www.googleapis.com"
_SCOPES = ["https://www.googleapis.com/auth/drive.readonly"]
_CALL_TIMEOUT = 60.0
_FIELDS = (
    "id,name,mimeType,size,md5Checksum,sha256Checksum,modifiedTime,headRevisionId,driveId,"
    "shortcutDetails(targetId,targetMimeType),capabilities(canDownload)"
)


class DriveApi:
    """A Google Drive connection with the credentials of a file."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self.root = (options.endpoint or _ENDPOINT).rstrip("/") + "/drive/v3/"
        self._credentials: Any = None
        self._drive: Any = None
        self._http: Any = None

    def close(self) -> None:
        """Close the connections; the next call reopens them."""
        if self._http is not None:
            self._http.close()

    def file(self, file_id: str) -> dict[str, Any]:
        """Return the metadata of one file or folder."""
        files = self._client().files()
        request = files.get(fileId=file_id, fields=_FIELDS, supportsAllDrives=True)
        return self._call(f"gdrive:{file_id}", request)

    def children(
        self, folder_id: str, drive: str | None, page: str | None
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return one page of a folder and the token of the next."""
        where = {"corpora": "drive", "driveId": drive} if drive else {}
        request = self._client().files().list(
            q=f"'{folder_id}' in parents and trashed = false",
            orderBy="name",
            pageSize=PAGE_ITEMS,
            pageToken=page,
            fields=f"nextPageToken,files({_FIELDS})",
            supportsAllDrives=True,
            includeItemsFromAllDrives=True,
            **where,
        )  # fmt: skip
        try:
            answer = self._call(f"gdrive:{folder_id}", request)
        except SourceRefused:
            if page is None:
                raise
            # The page token expired: list the folder from its start; known files are skipped.
            return self.children(folder_id, drive, None)
        return answer.get("files", []), answer.get("nextPageToken")

    def token(self) -> str:
        """Return a valid access token."""
        self._client()
        if not self._credentials.valid:
            self.refresh()
        return str(self._credentials.token)

    def refresh(self) -> bool:
        """Get a new access token after one was refused or expired."""
        import google_auth_httplib2
        from google.auth.exceptions import RefreshError, TransportError

        connection = _connection()
        try:
            self._credentials.refresh(google_auth_httplib2.Request(connection))
        except RefreshError as error:
            raise _refused_credentials("Google Drive", error) from error
        except (TransportError, OSError) as error:
            raise RetryableError(f"no access token could be obtained ({error})") from error
        finally:
            connection.close()
        return True

    def _call(self, subject: str, request: Any) -> dict[str, Any]:
        retries = RetryBudget(subject, self._options, lambda: None)
        while True:
            try:
                return dict(self._execute(subject, request))
            except RetryableError as error:
                retries.wait(error)

    def _execute(self, subject: str, request: Any) -> Any:
        import httplib2  # type: ignore[import-untyped]
        from google.auth.exceptions import RefreshError, TransportError
        from googleapiclient.errors import HttpError

        try:
            self.token()
            return request.execute()
        except HttpError as error:
            headers = {str(key).lower(): str(value) for key, value in error.resp.items()}
            body = error.content.decode("utf-8", "replace")
            raise failure(subject, int(error.resp.status), headers, body) from error
        except RefreshError as error:
            raise _refused_credentials(subject, error) from error
        except (
            OSError,
            TransportError,
            httplib2.HttpLib2Error,
            http.client.HTTPException,
        ) as error:
            raise RetryableError(
                f"the connection failed ({error or type(error).__name__})"
            ) from error

    def _client(self) -> Any:
        if self._drive is None:
            try:
                import google_auth_httplib2
                from googleapiclient.discovery import build
            except ImportError as error:
                raise SourceRefused(
                    "Google Drive: a required package is not installed. "
                    f"Run: {install_hint('gdrive')}"
                ) from error
            if self._options.endpoint:
                require_allowed(self._options.endpoint, self._options)
            self._credentials = _credentials(self._options.credentials)
            self._http = _connection()
            self._drive = build(
                "drive",
                "v3",
                http=google_auth_httplib2.AuthorizedHttp(self._credentials, http=self._http),
                client_options={"api_endpoint": self.root},
                cache_discovery=False,
                static_discovery=True,
            )
        return self._drive


def _connection() -> Any:
    import httplib2

    return httplib2.Http(timeout=_CALL_TIMEOUT)


def _refused_credentials(subject: str, error: Exception) -> SourceRefused:
    return SourceRefused(
        f"{subject}: the credentials were refused ({error.args[0]}). Renew the credentials file."
    )


def _credentials(path: Path | None) -> Any:
    from google.oauth2 import credentials, service_account

    if path is None:
        raise SourceRefused(
            "Google Drive: no credentials file is set. Set QUIRE_GDRIVE_CREDENTIALS to a service "
            "account or authorized user file."
        )
    try:
        known = json.loads(path.read_text())
        if known.get("type") == "service_account":
            service: Any = service_account.Credentials
            return service.from_service_account_info(known, scopes=_SCOPES)
        authorized: Any = credentials.Credentials
        user = authorized.from_authorized_user_info(known, scopes=_SCOPES)
        # Google's loader ignores the file's token_uri.
        return user.with_token_uri(known["token_uri"]) if known.get("token_uri") else user
    except FileNotFoundError:
        raise SourceRefused(f"{path}: the credentials file does not exist.") from None
    except OSError as error:
        raise FetchFailed(f"{path}: cannot be read ({error.strerror}).") from error
    except (ValueError, AttributeError) as error:
        raise SourceRefused(
            f"{path}: not a service account or authorized user file ({error})."
        ) from error
